//! Compares a publish request with how the volume is already published, on this node and on others.

use ebs_csi_controller::safe_detach::Mode as SafeDetach;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use tonic::{Code, Status};

use crate::driver::{
    CreateRequest, Driver, NODE_1, NODE_2, assert_refused, assert_status, block, mount, publish,
    volume,
};

async fn publish_as(
    driver: &Driver,
    id: &str,
    node: &str,
    capability: csi::VolumeCapability,
    readonly: bool,
) -> Result<(), Status> {
    let mut request = publish(id, node);
    request.volume_capability = Some(capability);
    request.readonly = readonly;
    driver.call(request).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn republish_with_different_mode_is_refused_until_unpublish() {
    let (driver, id) = Driver::with_volume(1).await;
    let writer = || block(Mode::SingleNodeWriter);
    publish_as(&driver, &id, NODE_1, mount(), false).await.unwrap();
    publish_as(&driver, &id, NODE_1, mount(), false).await.unwrap();
    for (capability, readonly, word) in
        [(writer(), false, "access_type"), (mount(), true, "readonly")]
    {
        let refused = publish_as(&driver, &id, NODE_1, capability, readonly).await.unwrap_err();
        assert_status(&refused, Code::AlreadyExists, &[word]);
    }
    assert_eq!(driver.world.calls("AttachVolume"), 1);
    // Another process detaches the volume: what this process remembers belongs to an attachment
    // that has ended.
    let other = driver.another().await;
    other.unpublish(&id, NODE_1).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    publish_as(&other, &id, NODE_1, writer(), false).await.unwrap();
    publish_as(&driver, &id, NODE_1, writer(), false).await.unwrap();
    driver.unpublish(&id, NODE_1).await.unwrap();
    publish_as(&driver, &id, NODE_1, mount(), false).await.unwrap();
}

/// EC2 would detach the boot volume of a stopped instance; the driver refuses that too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boot_volume_is_neither_published_nor_detached() {
    for mode in [SafeDetach::Off, SafeDetach::Ec2Only] {
        let driver = Driver::under(mode, serde_json::json!({})).await;
        let root = find_volume(&driver, |v| v["root"] == true && v.to_string().contains(NODE_1));
        assert_not_published(&driver, &root, "boots from").await;
        driver.world.power(NODE_1, "stop");
        // EC2 would detach the volume now that the instance is stopped.
        assert_refused(driver.unpublish(&root, NODE_1).await, Code::FailedPrecondition, &[]);
        assert_eq!(driver.world.calls("DetachVolume"), 0);
    }
}

/// Checks that the volume of the first node can be published to no node, for this reason.
async fn assert_not_published(driver: &Driver, id: &str, reason: &str) {
    assert_refused(driver.publish(id, NODE_1).await, Code::FailedPrecondition, &[reason]);
    assert_refused(driver.publish(id, NODE_2).await, Code::FailedPrecondition, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_template_volume_is_not_published() {
    let scenario = serde_json::json!({ "instances": [
        { "id": NODE_1, "type": "m5.large", "zone": "us-east-1a", "launch_disks": ["/dev/sdb"] },
        { "id": NODE_2, "type": "m5.large", "zone": "us-east-1a" },
    ] });
    let driver = Driver::in_world(scenario).await;
    let own = find_volume(&driver, |v| v.to_string().contains("/dev/sdb"));
    assert_not_published(&driver, &own, "(/dev/sdb)").await;
    assert_eq!(driver.world.calls("DetachVolume"), 0);
    assert_eq!(driver.world.calls("AttachVolume"), 0);
}

/// Returns the id of the first volume in EC2 that matches.
fn find_volume(driver: &Driver, matches: impl Fn(&serde_json::Value) -> bool) -> String {
    let volumes = driver.world.volumes();
    let found = volumes.iter().find(|volume| matches(volume)).expect("a volume");
    found["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_attach_needs_multi_node_create_and_publish() {
    let driver = Driver::new().await;
    let many = || block(Mode::MultiNodeMultiWriter);
    let alone = || block(Mode::SingleNodeWriter);
    let create = async |name: &str, capability| {
        let request = volume(name, 10).with_capability(capability);
        driver.create(request.with_parameters(&[("type", "io2"), ("iops", "1000")])).await
    };
    let shared = create("pvc-1", many()).await.unwrap().volume_id;
    publish_as(&driver, &shared, NODE_1, many(), false).await.unwrap();
    let refused = publish_as(&driver, &shared, NODE_2, alone(), false).await.unwrap_err();
    assert_status(&refused, Code::FailedPrecondition, &["access mode is for one node"]);
    publish_as(&driver, &shared, NODE_2, many(), false).await.unwrap();

    // Type io2 alone does not enable Multi-Attach.
    let single = create("pvc-2", alone()).await.unwrap().volume_id;
    publish_as(&driver, &single, NODE_1, many(), false).await.unwrap();
    let refused = publish_as(&driver, &single, NODE_2, many(), false).await.unwrap_err();
    assert_status(&refused, Code::FailedPrecondition, &["Multi-Attach is not enabled"]);
    // The name of a single-node volume does not serve a multi-node request either.
    assert_refused(create("pvc-2", many()).await, Code::AlreadyExists, &[]);
    driver.check_invariants();
}
