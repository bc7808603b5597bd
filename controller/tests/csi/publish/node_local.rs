//! Node-local volumes: found by their device name, never attached or detached.

use ebs_csi_ec2::Call;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use ebs_csi_wire::{DeviceName, InstanceId, VolumeId};
use tonic::Code;

use crate::driver::{Driver, NODE_1, NODE_2, assert_refused, assert_status, block, map, mount};

const HANDLE: &str = "local-ebs://dev/xvdbz";

/// Creates a volume and attaches it to the node under the handle's device name, outside the driver.
async fn attached_by_hand(driver: &Driver, name: &str, node: &str) -> String {
    let id = driver.created(name, 1).await;
    let (volume, node) = (VolumeId::parse(&id).unwrap(), InstanceId::parse(node).unwrap());
    let device = DeviceName::parse("/dev/xvdbz").unwrap();
    let ec2 = &driver.world.ec2;
    ec2.attach_volume(&Call::default(), &volume, &node, &device, None).await.unwrap();
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_local_handle_resolves_to_each_nodes_volume() {
    let driver = Driver::new().await;
    let first = attached_by_hand(&driver, "a", NODE_1).await;
    let second = attached_by_hand(&driver, "b", NODE_2).await;
    for (node, id) in [(NODE_1, &first), (NODE_2, &second)] {
        let context = driver.publish(HANDLE, node).await.unwrap();
        assert_eq!(context, map(&[("devicePath", "/dev/xvdbz"), ("volumeID", id)]));
    }
    for node in [NODE_1, NODE_2, "i-0fffffffffffffff1"] {
        driver.unpublish(HANDLE, node).await.unwrap();
    }
    driver.delete(HANDLE).await.unwrap();
    // Both attachments were made outside the driver, and both are still there.
    assert_eq!(driver.live("attachments"), 2);
    assert_eq!((driver.world.calls("AttachVolume"), driver.world.calls("DetachVolume")), (2, 0));
    assert_eq!(driver.world.calls("DeleteVolume"), 0);
    assert_eq!(driver.controller.operations(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_node_local_request_names_cause() {
    let driver = Driver::new().await;
    attached_by_hand(&driver, "a", NODE_1).await;
    for (handle, node, code, word) in [
        ("local-ebs://", NODE_1, Code::InvalidArgument, "local-ebs://dev/xvdbz"),
        ("local-ebs://dev/xvda", NODE_1, Code::InvalidArgument, "boots from /dev/xvda"),
        ("local-ebs://dev/xvdcc", NODE_1, Code::NotFound, "/dev/xvdcc"),
        (HANDLE, NODE_2, Code::NotFound, NODE_2),
        (HANDLE, "i-0fffffffffffffff1", Code::NotFound, "i-0fffffffffffffff1"),
        (HANDLE, "nonsense", Code::NotFound, "nonsense"),
        (HANDLE, "", Code::InvalidArgument, "node_id"),
    ] {
        assert_refused(driver.publish(handle, node).await, code, &[word]);
    }
    for refused in [
        driver.expand(HANDLE, 2).await.unwrap_err(),
        driver.modify(HANDLE, &[("iops", "4000")]).await.unwrap_err(),
        driver.snapshot("s", HANDLE).await.unwrap_err(),
    ] {
        assert_status(&refused, Code::InvalidArgument, &["EBS volume's id"]);
    }
    let off = driver.without_node_local_volumes().await;
    let refused = off.publish(HANDLE, NODE_1).await.unwrap_err();
    assert_status(&refused, Code::InvalidArgument, &["--enable-node-local-volumes"]);
    off.unpublish(HANDLE, NODE_1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_local_capabilities_are_validated_without_describe_volumes() {
    let driver = Driver::new().await;
    let validate = async |capabilities| {
        let request = csi::ValidateVolumeCapabilitiesRequest {
            volume_id: HANDLE.to_owned(),
            volume_capabilities: capabilities,
            ..Default::default()
        };
        driver.call(request).await
    };
    let mut shared = mount();
    shared.access_mode = block(Mode::MultiNodeMultiWriter).access_mode;
    let confirmed = validate(vec![mount(), shared, block(Mode::MultiNodeMultiWriter)]).await;
    assert!(confirmed.unwrap().confirmed.is_some());
    let refused = validate(vec![block(Mode::MultiNodeReaderOnly)]).await;
    assert!(refused.unwrap().confirmed.is_none());
    assert_eq!(validate(vec![]).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(driver.world.calls("DescribeVolumes"), 0);
}
