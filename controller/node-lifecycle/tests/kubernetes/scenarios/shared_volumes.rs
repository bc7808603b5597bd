//! Volumes that several nodes use, and volumes that this driver did not create.

use ebs_csi_proto::DRIVER_NAME;
use serde_json::json;

use crate::environment::world::{ONE_WRITER, TestResult, World, ensure};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F39_one_of_three_nodes_of_shared_volume_dies", one_of_three(world)),
        Scenario::new("F50_a_static_volume_attached_by_hand", by_hand(world)),
    ]
}

/// The dead node's attachment is removed; the others stay, and so do their pods.
async fn one_of_three(world: &World<'_>) -> TestResult {
    let handle = world.driver.shared_volume("f39").await?;
    world.bound("f39", (DRIVER_NAME, &handle), ("ReadWriteMany", "Block")).await?;
    let mut users = Vec::new();
    for node in ["f39-a", "f39-b", "f39-c"] {
        let mut user = world.existing("f39", node, &world.node(node).await?, &handle);
        user.pod = format!("{node}-0");
        world.run_pod(&user.pod, node, &["f39"]).await?;
        users.push(user);
    }
    let dead = users.remove(0);
    dead.power_off()?;
    dead.wait_until_tainted().await?;
    dead.wait_until_pod_gone().await?;
    dead.wait_until_detached().await?;
    for user in &users {
        ensure(user.is_attached()?, "the volume stays at the running instances")?;
        ensure(user.is_kept().await?, "its attachment stays")?;
        let pod = world.pods().get(&user.pod).await?;
        ensure(pod.metadata.deletion_timestamp.is_none(), "its pod keeps running")?;
    }
    Ok(())
}

/// Neither the volume nor its first attachment was made by the driver: the driver takes the volume
/// over, and the volume moves when its node dies.
async fn by_hand(world: &World<'_>) -> TestResult {
    let node = "f50-a";
    let instance = world.node(node).await?;
    let parameters = json!({"AvailabilityZone": "us-east-1a", "Size": "1", "VolumeType": "gp3"});
    let made = world.as_foreign("CreateVolume", &parameters)?;
    let id = made.split_once("<volumeId>").and_then(|(_, rest)| rest.split_once("</volumeId>"));
    let (handle, _) = id.ok_or_else(|| format!("CreateVolume: {made}"))?;
    let parameters = json!({"VolumeId": handle, "InstanceId": instance, "Device": "/dev/sdf"});
    world.as_foreign("AttachVolume", &parameters)?;
    world.bound("f50", (DRIVER_NAME, handle), ONE_WRITER).await?;
    let at = world.existing("f50", node, &instance, handle);
    world.run_pod(&at.pod, node, &["f50"]).await?;
    at.power_off()?;
    at.wait_until_pod_gone().await?;
    at.wait_until_detached().await?;
    at.move_to_new("f50-b").await
}
