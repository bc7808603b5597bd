//! A volume's whole life; repeated requests change nothing.

use ebs_csi_proto::csi;
use tonic::Code;

use crate::driver::{
    CreateRequest, Driver, NODE_1, NODE_2, assert_refused, block, from_snapshot, from_volume,
    mount, range, volume,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_volume_lifecycle_leaves_no_resources() {
    let driver = Driver::new().await;
    let made = driver.create(volume("pvc-1", 4)).await.unwrap();
    assert_eq!(made.capacity_bytes, 4 << 30);
    assert_eq!(made.accessible_topology[0].segments["topology.kubernetes.io/zone"], "us-east-1a");
    let id = made.volume_id.as_str();

    let context = driver.publish(id, NODE_1).await.unwrap();
    assert_eq!(context["devicePath"], "/dev/xvdaa");
    assert_eq!(context["ebs.csi.aws.com/size-bytes"], (4u64 << 30).to_string());
    assert_eq!(context["ebs.csi.aws.com/origin"], "blank");
    assert!(context["ebs.csi.aws.com/attached-at"].ends_with('Z'), "{context:?}");

    driver.unpublish(id, NODE_1).await.unwrap();
    driver.publish(id, NODE_2).await.unwrap();
    driver.unpublish(id, NODE_2).await.unwrap();

    let snapshot = driver.ready_snapshot("snap-1", id).await;
    assert_eq!(snapshot.source_volume_id, id);
    let source = from_snapshot(&snapshot.snapshot_id);
    let restored = driver.create(volume("pvc-2", 4).with_source(source.clone())).await.unwrap();
    assert_eq!(restored.content_source, Some(source));
    let copied = driver.create(volume("pvc-3", 4).with_source(from_volume(id))).await.unwrap();
    let grown = driver.expand(id, 6).await.unwrap();
    assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (6 << 30, true));

    for id in [id, &restored.volume_id, &copied.volume_id] {
        driver.delete(id).await.unwrap();
        driver.delete(id).await.unwrap();
    }
    for _ in 0..2 {
        driver.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    }
    assert_eq!(
        (driver.live("volumes"), driver.live("snapshots"), driver.live("attachments")),
        (0, 0, 0)
    );
    assert_eq!(driver.controller.operations(), 0);
    driver.check_invariants();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_changes_nothing() {
    let driver = Driver::new().await;
    let first = driver.create(volume("pvc-1", 1)).await.unwrap();
    assert_eq!(driver.create(volume("pvc-1", 1)).await.unwrap(), first);
    let context = driver.publish(&first.volume_id, NODE_1).await.unwrap();
    assert_eq!(driver.publish(&first.volume_id, NODE_1).await.unwrap(), context);
    // A volume in use is still the volume of its name.
    assert_eq!(driver.create(volume("pvc-1", 1)).await.unwrap(), first);
    assert_eq!(driver.world.calls("AttachVolume"), 1);
    driver.unpublish(&first.volume_id, NODE_1).await.unwrap();
    driver.unpublish(&first.volume_id, NODE_1).await.unwrap();
    let snapshot = driver.ready_snapshot("s", &first.volume_id).await;
    assert_eq!(driver.snapshot("s", &first.volume_id).await.unwrap(), snapshot);
    assert_eq!((driver.live("volumes"), driver.live("snapshots")), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validation_refuses_unsupported_modes_and_unknown_volumes() {
    use csi::volume_capability::access_mode::Mode;
    let (driver, id) = Driver::with_volume(1).await;
    let validate = async |id: &str, capability| {
        let request = csi::ValidateVolumeCapabilitiesRequest {
            volume_id: id.to_owned(),
            volume_capabilities: vec![capability],
            ..Default::default()
        };
        driver.call(request).await
    };
    assert!(validate(&id, mount()).await.unwrap().confirmed.is_some());
    for mode in [Mode::MultiNodeMultiWriter, Mode::MultiNodeReaderOnly] {
        let refused = validate(&id, block(mode)).await.unwrap();
        assert!(refused.confirmed.is_none() && !refused.message.is_empty());
    }
    for unknown in ["vol-0123456789abcdef0", "no-such-volume"] {
        assert_eq!(validate(unknown, mount()).await.unwrap_err().code(), Code::NotFound);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_defaults_to_source_size_and_refuses_less() {
    let (driver, source) = Driver::with_volume(120).await;
    let copy = |name: &str, capacity_range| csi::CreateVolumeRequest {
        capacity_range,
        ..volume(name, 0).with_source(from_volume(&source))
    };
    let made = driver.create(copy("pvc-2", None)).await.unwrap();
    assert_eq!(made.capacity_bytes, 120 << 30);
    for range in [range(1, 0), range(0, 110)] {
        assert_refused(driver.create(copy("pvc-3", range)).await, Code::OutOfRange, &[]);
    }
    let refused = driver.create(copy("pvc-4", None).in_zone("us-east-1b")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert_eq!(driver.live("volumes"), 2);
}
