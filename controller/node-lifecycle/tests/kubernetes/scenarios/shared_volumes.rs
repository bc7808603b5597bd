//! Volumes that several nodes use, and volumes that this driver did not create.

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_client::ControllerClient;
use serde_json::json;
use tonic::transport::Endpoint;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F39_one_of_three_nodes_of_shared_volume_dies", one_of_three(world)),
        Scenario::new("F50_a_static_volume_attached_by_hand", by_hand(world)),
    ]
}

/// Creates a volume that may be attached to several instances at once.
async fn shared_volume(world: &World<'_>, name: &str) -> Result<String, String> {
    use csi::volume_capability::{AccessMode, AccessType, BlockVolume, access_mode::Mode};
    let address = format!("unix://{}", world.driver.csi.display());
    let endpoint = Endpoint::try_from(address).map_err(|e| e.to_string())?;
    let channel = endpoint.connect().await.map_err(|e| e.to_string())?;
    let zone = csi::Topology {
        segments: [("topology.ebs.csi.aws.com/zone".to_owned(), "us-east-1a".to_owned())].into(),
    };
    let request = csi::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::CapacityRange { required_bytes: 4 << 30, limit_bytes: 0 }),
        parameters: [("type", "io2"), ("iops", "100")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        volume_capabilities: vec![csi::VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::MultiNodeMultiWriter.into() }),
            access_type: Some(AccessType::Block(BlockVolume {})),
        }],
        accessibility_requirements: Some(csi::TopologyRequirement {
            requisite: vec![zone.clone()],
            preferred: vec![zone],
        }),
        ..Default::default()
    };
    let made = ControllerClient::new(channel).create_volume(request).await;
    let volume = made.map_err(|e| e.to_string())?.into_inner().volume;
    let volume = volume.ok_or("no volume")?;
    world.bound_as(name, &volume.volume_id, ("ReadWriteMany", "Block")).await?;
    Ok(volume.volume_id)
}

/// The dead node's attachment is removed; the others stay, and so do their pods.
async fn one_of_three(world: &World<'_>) -> Outcome {
    let nodes = ["f39-a", "f39-b", "f39-c"];
    let mut instances = Vec::new();
    for node in nodes {
        instances.push(world.node(node).await?);
    }
    let handle = shared_volume(world, "f39").await?;
    for node in nodes {
        world.run_pod(&format!("{node}-0"), node, &["f39"]).await?;
    }
    world.driver.power(&instances[0], "stop")?;
    world.nodes.stop_heartbeats(nodes[0]);
    wait_until("our taint is on it", || async {
        Ok(world.taints(nodes[0]).await? == ["ebs-safe-detach"])
    })
    .await?;
    world.wait_until_pod_gone("f39-a-0").await?;
    world.wait_until_detached("f39", nodes[0], &handle, &instances[0]).await?;
    for (node, instance) in nodes.iter().zip(&instances).skip(1) {
        ensure(world.driver.is_attached(&handle, instance)?, "the volume stays at the living")?;
        ensure(world.is_kept("f39", node).await?, "its attachment stays")?;
        let pod = world.pods().get(&format!("{node}-0")).await;
        let pod = pod.map_err(|e| e.to_string())?;
        ensure(pod.metadata.deletion_timestamp.is_none(), "its pod goes on")?;
    }
    Ok(())
}

/// Neither the volume nor its first attachment was made by the driver: the driver takes the volume
/// over, and the volume moves when its node dies.
async fn by_hand(world: &World<'_>) -> Outcome {
    let (from, to) = ("f50-a", "f50-b");
    let (instance, other) = (world.node(from).await?, world.node(to).await?);
    let made = world.as_foreign(
        "CreateVolume",
        &json!({"AvailabilityZone": "us-east-1a", "Size": "1", "VolumeType": "gp3"}),
    )?;
    let handle = made
        .split_once("<volumeId>")
        .and_then(|(_, rest)| rest.split_once("</volumeId>"))
        .map(|(id, _)| id.to_owned())
        .ok_or_else(|| format!("CreateVolume: {made}"))?;
    world.as_foreign(
        "AttachVolume",
        &json!({"VolumeId": handle, "InstanceId": instance, "Device": "/dev/sdf"}),
    )?;
    world.bound_as("f50", &handle, ("ReadWriteOnce", "Filesystem")).await?;
    world.run_pod("f50-0", from, &["f50"]).await?;
    world.driver.power(&instance, "stop")?;
    world.nodes.stop_heartbeats(from);
    world.wait_until_pod_gone("f50-0").await?;
    world.wait_until_detached("f50", from, &handle, &instance).await?;
    world.run_pod("f50-0", to, &["f50"]).await?;
    ensure(world.driver.is_attached(&handle, &other)?, "the volume is where its pod is")
}
