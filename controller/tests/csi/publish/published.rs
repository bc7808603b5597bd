//! Compares a publish request with how the volume is already published, on this node and on others.

use ebs_csi_controller::safe_detach::Mode as SafeDetach;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use tonic::{Code, Status};

use crate::driver::{
    Driver, NODE_1, NODE_2, assert_status, block, map, mount, publish, volume, within,
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
    let mut client = driver.client.clone();
    client.controller_publish_volume(within(request, 30)).await.map(drop)
}

/// A different access type or readonly flag is AlreadyExists. A detach by another process ends the
/// restriction too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn republish_with_different_mode_is_refused_until_unpublish() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 1)).await.unwrap().volume_id;
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
        boot_volume_is_left_alone(Driver::under(mode, serde_json::json!({})).await).await;
    }
}

async fn boot_volume_is_left_alone(driver: Driver) {
    let state = driver.world.command(|control| control.get("/v1/state"));
    let text = state.to_string();
    let volumes = find(&state, "volumes").unwrap_or_else(|| panic!("{text}"));
    let root = volumes
        .iter()
        .find(|v| v["root"] == true && v.to_string().contains(NODE_1))
        .unwrap_or_else(|| panic!("{text}"));
    let root = root["id"].as_str().unwrap();
    let refused = driver.publish(root, NODE_1).await.unwrap_err();
    assert_status(&refused, Code::FailedPrecondition, &["boots from"]);
    let elsewhere = driver.publish(root, NODE_2).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::FailedPrecondition, "{elsewhere}");
    driver.world.command(|control| {
        let body = serde_json::json!({ "at_once": true });
        control.post(&format!("/v1/instances/{NODE_1}/stop"), &body)
    });
    // EC2 would detach the volume now that the instance is stopped.
    let refused = driver.unpublish(root, NODE_1).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert_eq!(driver.world.calls("DetachVolume"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_template_volume_is_not_published() {
    let scenario = serde_json::json!({ "instances": [
        { "id": NODE_1, "type": "m5.large", "zone": "us-east-1a", "launch_disks": ["/dev/sdb"] },
        { "id": NODE_2, "type": "m5.large", "zone": "us-east-1a" },
    ] });
    let driver = Driver::in_world(scenario).await;
    let state = driver.world.command(|control| control.get("/v1/state"));
    let volumes = find(&state, "volumes").unwrap();
    let own = volumes.iter().find(|v| v.to_string().contains("/dev/sdb"));
    let own = own.unwrap()["id"].as_str().unwrap();
    let refused = driver.publish(own, NODE_1).await.unwrap_err();
    assert_status(&refused, Code::FailedPrecondition, &["(/dev/sdb)"]);
    let elsewhere = driver.publish(own, NODE_2).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::FailedPrecondition, "{elsewhere}");
    assert_eq!(driver.world.calls("DetachVolume"), 0);
    assert_eq!(driver.world.calls("AttachVolume"), 0);
}

/// Returns the entries under a key at any depth.
fn find<'a>(value: &'a serde_json::Value, key: &str) -> Option<Vec<&'a serde_json::Value>> {
    use serde_json::Value;
    match value {
        Value::Object(map) => match map.get(key) {
            Some(Value::Array(entries)) => Some(entries.iter().collect()),
            Some(Value::Object(entries)) => Some(entries.values().collect()),
            _ => map.values().find_map(|value| find(value, key)),
        },
        Value::Array(values) => values.iter().find_map(|value| find(value, key)),
        _ => None,
    }
}

/// Type io2 alone does not enable Multi-Attach, and the name of a single-node volume serves no
/// multi-node create.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_attach_needs_multi_node_create_and_publish() {
    let driver = Driver::new().await;
    let many = || block(Mode::MultiNodeMultiWriter);
    let io2 = map(&[("type", "io2"), ("iops", "1000")]);
    let request = csi::CreateVolumeRequest {
        volume_capabilities: vec![many()],
        parameters: io2.clone(),
        ..volume("pvc-1", 10)
    };
    let shared = driver.create(request).await.unwrap().volume_id;
    publish_as(&driver, &shared, NODE_1, many(), false).await.unwrap();
    let alone = || block(Mode::SingleNodeWriter);
    let refused = publish_as(&driver, &shared, NODE_2, alone(), false).await.unwrap_err();
    assert_status(&refused, Code::FailedPrecondition, &["access mode is for one node"]);
    publish_as(&driver, &shared, NODE_2, many(), false).await.unwrap();

    // Type io2 alone does not enable Multi-Attach.
    let request = csi::CreateVolumeRequest {
        volume_capabilities: vec![alone()],
        parameters: io2,
        ..volume("pvc-2", 10)
    };
    let single = driver.create(request).await.unwrap().volume_id;
    publish_as(&driver, &single, NODE_1, many(), false).await.unwrap();
    let refused = publish_as(&driver, &single, NODE_2, many(), false).await.unwrap_err();
    assert_status(&refused, Code::FailedPrecondition, &["Multi-Attach is not enabled"]);
    // The name of a single-node volume does not serve a multi-node request either.
    let request = csi::CreateVolumeRequest {
        volume_capabilities: vec![many()],
        parameters: map(&[("type", "io2"), ("iops", "1000")]),
        ..volume("pvc-2", 10)
    };
    let refused = driver.create(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    driver.check_invariants();
}
