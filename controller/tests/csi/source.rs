//! The publish context tells a node where the source of a copy came from, so that the node fully
//! checks only copies of foreign sources.

use ebs_csi_controller::csi::service::ServiceSettings;
use ebs_csi_controller::tags::TagSettings;
use ebs_csi_proto::csi;

use crate::driver::{CreateRequest, Driver, NODE_1, from_snapshot, from_volume, settings, volume};

const ORIGIN: &str = "ebs.csi.aws.com/origin";

async fn other_cluster(driver: &Driver) -> Driver {
    let tags = TagSettings { cluster_id: Some("other".to_owned()), ..Default::default() };
    driver.another_with(ServiceSettings { tags, ..settings() }).await
}

async fn made_of(driver: &Driver, name: &str, source: csi::VolumeContentSource) -> String {
    driver.create(volume(name, 4).with_source(source)).await.unwrap().volume_id
}

/// Returns the origin in the volume's publish context.
async fn origin(driver: &Driver, id: &str) -> String {
    let context = driver.publish(id, NODE_1).await.unwrap();
    driver.unpublish(id, NODE_1).await.unwrap();
    context[ORIGIN].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_context_origin_separates_own_and_foreign_copies() {
    let driver = Driver::new().await;
    let other = other_cluster(&driver).await;
    for (maker, by_snapshot, by_volume) in
        [(&driver, "own-snapshot", "own-volume"), (&other, "snapshot", "volume")]
    {
        let source = maker.created(by_volume, 4).await;
        let snapshot = maker.ready_snapshot(by_snapshot, &source).await.snapshot_id;
        let restored =
            made_of(&driver, &format!("{by_snapshot}-r"), from_snapshot(&snapshot)).await;
        let copied = made_of(&driver, &format!("{by_volume}-c"), from_volume(&source)).await;
        assert_eq!(origin(&driver, &restored).await, by_snapshot);
        assert_eq!(origin(&driver, &copied).await, by_volume);
        // The answer is cached.
        let calls = driver.world.calls("DescribeSnapshots");
        assert_eq!(origin(&driver, &restored).await, by_snapshot);
        assert_eq!(driver.world.calls("DescribeSnapshots"), calls);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_source_is_reported_as_unseen() {
    let (driver, source) = Driver::with_volume(4).await;
    let snapshot = driver.ready_snapshot("s", &source).await.snapshot_id;
    let restored = made_of(&driver, "pvc-2", from_snapshot(&snapshot)).await;
    let copied = made_of(&driver, "pvc-3", from_volume(&source)).await;
    driver.delete_snapshot(&snapshot).await.unwrap();
    driver.delete(&source).await.unwrap();
    assert_eq!(origin(&driver, &restored).await, "unseen-snapshot");
    assert_eq!(origin(&driver, &copied).await, "unseen-volume");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_source_lookup_does_not_fail_attach() {
    let (driver, source) = Driver::with_volume(4).await;
    let snapshot = driver.ready_snapshot("s", &source).await.snapshot_id;
    let restored = made_of(&driver, "pvc-2", from_snapshot(&snapshot)).await;
    driver.world.deny("DescribeSnapshots");
    assert_eq!(origin(&driver, &restored).await, "unseen-snapshot");
    driver.world.clear_faults();
    assert_eq!(origin(&driver, &restored).await, "own-snapshot");
}
