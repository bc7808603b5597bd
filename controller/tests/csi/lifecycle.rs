//! A volume's whole life; repeated requests change nothing.

use ebs_csi_proto::csi;
use tonic::Code;

use crate::driver::{Driver, NODE_1, NODE_2, from_snapshot, from_volume, mount, volume};

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

    let elsewhere = driver.publish(id, NODE_2).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::FailedPrecondition);
    assert!(elsewhere.message().contains(NODE_1), "{elsewhere}");
    let in_use = driver.delete(id).await.unwrap_err();
    assert_eq!(in_use.code(), Code::FailedPrecondition);
    assert!(in_use.message().contains(NODE_1), "{in_use}");

    driver.unpublish(id, NODE_1).await.unwrap();
    driver.publish(id, NODE_2).await.unwrap();
    driver.unpublish(id, NODE_2).await.unwrap();

    let snapshot = driver.ready_snapshot("snap-1", id).await;
    assert_eq!(snapshot.source_volume_id, id);
    let restored = driver
        .create(csi::CreateVolumeRequest {
            volume_content_source: Some(from_snapshot(&snapshot.snapshot_id)),
            ..volume("pvc-2", 4)
        })
        .await
        .unwrap();
    assert_eq!(restored.content_source, Some(from_snapshot(&snapshot.snapshot_id)));
    let context = driver.publish(&restored.volume_id, NODE_1).await.unwrap();
    assert_eq!(context["ebs.csi.aws.com/origin"], "own-snapshot");
    driver.unpublish(&restored.volume_id, NODE_1).await.unwrap();

    let copied = driver
        .create(csi::CreateVolumeRequest {
            volume_content_source: Some(from_volume(id)),
            ..volume("pvc-3", 4)
        })
        .await
        .unwrap();
    let context = driver.publish(&copied.volume_id, NODE_1).await.unwrap();
    assert_eq!(context["ebs.csi.aws.com/origin"], "own-volume");
    driver.unpublish(&copied.volume_id, NODE_1).await.unwrap();

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
async fn volume_lifecycle_makes_each_mutating_call_once() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 1)).await.unwrap().volume_id;
    driver.publish(&id, NODE_1).await.unwrap();
    driver.unpublish(&id, NODE_1).await.unwrap();
    driver.delete(&id).await.unwrap();
    for action in ["CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume"] {
        assert_eq!(driver.world.calls(action), 1, "{action}");
    }
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
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 1)).await.unwrap().volume_id;
    let validate = async |id: &str, capability| {
        let request = csi::ValidateVolumeCapabilitiesRequest {
            volume_id: id.to_owned(),
            volume_capabilities: vec![capability],
            ..Default::default()
        };
        driver.ask(request).await
    };
    let confirmed = async |capability| validate(&id, capability).await.unwrap();
    assert!(confirmed(mount()).await.confirmed.is_some());
    let refused = confirmed(crate::driver::block(Mode::MultiNodeMultiWriter)).await;
    assert!(refused.confirmed.is_none() && !refused.message.is_empty());
    let refused = confirmed(crate::driver::block(Mode::MultiNodeReaderOnly)).await;
    assert!(refused.confirmed.is_none() && !refused.message.is_empty());
    for unknown in ["vol-0123456789abcdef0", "no-such-volume"] {
        assert_eq!(validate(unknown, mount()).await.unwrap_err().code(), Code::NotFound);
    }
}

/// A copy in another zone than its source's is refused too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_defaults_to_source_size_and_refuses_less() {
    let driver = Driver::new().await;
    let source = driver.create(volume("pvc-1", 120)).await.unwrap().volume_id;
    let copy = |name: &str, range| csi::CreateVolumeRequest {
        volume_content_source: Some(from_volume(&source)),
        capacity_range: range,
        ..volume(name, 0)
    };
    let range =
        |required_bytes, limit_bytes| Some(csi::CapacityRange { required_bytes, limit_bytes });
    let made = driver.create(copy("pvc-2", None)).await.unwrap();
    assert_eq!(made.capacity_bytes, 120 << 30);
    for range in [range(1 << 30, 0), range(0, 110 << 30)] {
        let refused = driver.create(copy("pvc-3", range)).await.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    }
    let elsewhere = csi::CreateVolumeRequest {
        accessibility_requirements: Some(crate::driver::in_zone("us-east-1b")),
        ..copy("pvc-4", None)
    };
    let refused = driver.create(elsewhere).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert_eq!(driver.live("volumes"), 2);
}
