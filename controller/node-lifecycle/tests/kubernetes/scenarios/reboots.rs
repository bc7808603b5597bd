//! Nodes that reboot or resume: no volume is detached from them before their kubelet reports that
//! it is released.

use serde_json::json;

use crate::environment::world::{TestResult, World, ensure};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F5_hibernated_and_resumed", hibernated(world)),
        Scenario::new("F6_rebooted", rebooted(world)),
        Scenario::new("F7_rebooted_while_cut_off", rebooted_cut_off(world)),
        Scenario::new("F8_stopped_and_started_while_cut_off", restarted_cut_off(world)),
        Scenario::new("driver_taint_leaves_node_whose_pod_tolerates_it", tolerated(world)),
    ]
}

/// A hibernated instance saves its mounts in its memory: while stopped it keeps its volumes, and
/// after the resume it continues to use them.
async fn hibernated(world: &World<'_>) -> TestResult {
    let instance = world.instance(&json!({"hibernation": true}))?;
    world.nodes.create("f5-a", &instance, "us-east-1a").await?;
    let at = world.existing("f5", "f5-a", &instance, &world.volume("f5").await?);
    world.run_pod(&at.pod, &at.node, &["f5"]).await?;
    at.power("hibernate")?;
    at.stop_heartbeats();
    at.check_left_alone().await?;
    // A person tries to have the volume moved nevertheless.
    at.delete_attachment().await?;
    at.check_refused("hibernated").await?;

    at.power("start")?;
    at.boot("boot-1").await?;
    at.check_refused("in-use").await?;
    at.end_pod().await?;
    at.retry_until_detached_once().await?;
    at.move_to_new("f5-b").await
}

/// EC2 does not show a reboot. The new boot terminates the pods that Kubernetes has evicted
/// meanwhile, and releases the volume.
async fn rebooted(world: &World<'_>) -> TestResult {
    let at = world.attached("f6", "f6").await?;
    at.stop_heartbeats();
    at.check_left_alone().await?;
    ensure(at.is_kept().await?, "its detach is not requested")?;
    at.boot("boot-2").await?;
    at.wait_until_ready().await?;
    // `volumesInUse` still lists the volume: kubelet rebuilds the list from its disk.
    at.check_untouched().await?;
    at.end_pod().await?;
    at.retry_until_detached_once().await?;
    at.move_to(&at.node, &at.instance).await
}

/// Nobody sees the reboot: the volume stays attached until the new boot reports that it does not
/// use the volume.
async fn rebooted_cut_off(world: &World<'_>) -> TestResult {
    let at = world.attached("f7", "f7-a").await?;
    at.stop_heartbeats();
    at.check_left_alone().await?;
    // A person who knows of the reboot deletes the VolumeAttachment and the pod.
    at.delete_attachment().await?;
    world.end_pod(&at.pod).await?;
    at.check_refused("node-not-ready").await?;
    at.release().await?;
    at.check_untouched().await?;
    at.boot("boot-2").await?;
    at.retry_until_detached_once().await?;
    at.move_to_new("f7-b").await
}

/// EC2 shows the instance running, with a new launch time. The old boot is over, but nothing shows
/// that the new one has not mounted the volume: the detach is refused while the new boot is silent,
/// and while it registers and reports that it uses the volume.
async fn restarted_cut_off(world: &World<'_>) -> TestResult {
    let at = world.attached("f8", "f8").await?;
    // Before Kubernetes marks the node not Ready.
    at.power("stop")?;
    at.power("start")?;
    at.stop_heartbeats();
    at.check_left_alone().await?;
    at.delete_attachment().await?;
    at.check_refused("node-not-ready").await?;
    // The new boot registers while the detach is tried: in either order, the volume stays attached.
    let (registered, refused) = tokio::join!(at.boot("boot-2"), at.wait_until_refused("in-use"));
    registered.and(refused)?;
    at.check_untouched().await?;
    at.end_pod().await?;
    at.retry_until_detached_once().await
}

/// The pod that tolerates the driver's taint stays on the node through the reboot with its volume;
/// the taint is lifted when the new boot is Ready.
async fn tolerated(world: &World<'_>) -> TestResult {
    let node = "tolerated";
    let instance = world.node(node).await?;
    let handle = world.volume(node).await?;
    let at = world.existing(node, node, &instance, &handle);
    let every = json!([{"operator": "Exists"}]);
    world.add_tolerant_pod(&at.pod, node, &[node], every).await?;
    world.begin_pod(&at.pod, node, &[node]).await?;
    at.power_off()?;
    at.wait_until_tainted().await?;
    at.power("start")?;
    at.boot("boot-2").await?;
    at.wait_until_untainted().await?;
    ensure(world.is_ready(node).await?, "the new boot is Ready")?;
    let pod = world.pods().get(&at.pod).await?;
    ensure(pod.metadata.deletion_timestamp.is_none(), "the pod stays")?;
    ensure(at.is_kept().await?, "its attachment stays")?;
    at.check_untouched().await?;
    at.end_pod().await
}
