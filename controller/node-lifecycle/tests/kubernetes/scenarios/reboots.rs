//! Nodes that reboot or resume: no volume is detached from them before their kubelet reports that
//! it is released.

use serde_json::json;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F5_hibernated_and_resumed", hibernated(world)),
        Scenario::new("F6_rebooted", rebooted(world)),
        Scenario::new("F7_rebooted_while_cut_off", rebooted_cut_off(world)),
        Scenario::new("F8_stopped_and_started_while_cut_off", restarted_cut_off(world)),
    ]
}

/// A hibernated instance saves its mounts in its memory: while stopped it keeps its volumes, and
/// after the resume it continues to use them.
async fn hibernated(world: &World<'_>) -> Outcome {
    let (from, to) = ("f5-a", "f5-b");
    let instance = world.node_with(from, &json!({"hibernation": true})).await?;
    let other = world.node(to).await?;
    let handle = world.volume("f5").await?;
    world.run_pod("f5-0", from, &["f5"]).await?;
    world.driver.power(&instance, "hibernate")?;
    world.nodes.stop_heartbeats(from);
    world.check_left_alone(from, "f5-0", &handle, &instance).await?;
    // A person tries to have the volume moved nevertheless.
    world.delete_attachment("f5", from).await?;
    world.wait_until_refused("f5", from, "hibernated").await?;
    world.check_untouched(from, &handle, &instance).await?;

    world.driver.power(&instance, "start")?;
    world.nodes.boot(from, "boot-1").await?;
    world.wait_until_refused("f5", from, "in-use").await?;
    world.check_untouched(from, &handle, &instance).await?;
    world.end_pod("f5-0").await?;
    world.nodes.in_use(from, &[]).await?;
    world.retry_until_detached("f5", from).await?;
    world.check_detached_once(&handle, &instance)?;
    world.run_pod("f5-0", to, &["f5"]).await?;
    ensure(world.driver.is_attached(&handle, &other)?, "the volume is where its pod is")
}

/// EC2 does not show a reboot. The new boot terminates the pods that Kubernetes has meanwhile asked
/// to end, and releases the volume.
async fn rebooted(world: &World<'_>) -> Outcome {
    let node = "f6";
    let instance = world.node(node).await?;
    let handle = world.volume("f6").await?;
    world.run_pod("f6-0", node, &["f6"]).await?;
    world.nodes.stop_heartbeats(node);
    world.check_left_alone(node, "f6-0", &handle, &instance).await?;
    ensure(world.is_kept("f6", node).await?, "nobody asks for its detach")?;
    world.nodes.boot(node, "boot-2").await?;
    wait_until("it is Ready again", || world.is_ready(node)).await?;
    // `volumesInUse` still lists the volume: kubelet rebuilds the list from its disk.
    world.check_untouched(node, &handle, &instance).await?;
    world.nodes.in_use(node, &[]).await?;
    world.end_pod("f6-0").await?;
    world.retry_until_detached("f6", node).await?;
    world.check_detached_once(&handle, &instance)?;
    world.run_pod("f6-0", node, &["f6"]).await?;
    ensure(world.driver.is_attached(&handle, &instance)?, "the volume is back")
}

/// Nobody sees the reboot: the volume stays attached until the new boot reports that it does not
/// use the volume.
async fn rebooted_cut_off(world: &World<'_>) -> Outcome {
    let (from, to) = ("f7-a", "f7-b");
    let instance = world.node(from).await?;
    let other = world.node(to).await?;
    let handle = world.volume("f7").await?;
    world.run_pod("f7-0", from, &["f7"]).await?;
    world.nodes.stop_heartbeats(from);
    world.check_left_alone(from, "f7-0", &handle, &instance).await?;
    // A person who knows of the reboot deletes the VolumeAttachment and the pod.
    world.delete_attachment("f7", from).await?;
    world.end_pod("f7-0").await?;
    world.wait_until_refused("f7", from, "node-not-ready").await?;
    world.check_untouched(from, &handle, &instance).await?;
    world.nodes.in_use(from, &[]).await?;
    world.check_untouched(from, &handle, &instance).await?;
    world.nodes.boot(from, "boot-2").await?;
    world.retry_until_detached("f7", from).await?;
    world.check_detached_once(&handle, &instance)?;
    world.run_pod("f7-0", to, &["f7"]).await?;
    ensure(world.driver.is_attached(&handle, &other)?, "the volume is where its pod is")
}

/// EC2 shows the instance running, with a new launch time. The old boot is over, but nothing shows
/// that the new one has not mounted the volume: the detach is refused while the new boot is silent,
/// and while it registers and reports that it uses the volume.
async fn restarted_cut_off(world: &World<'_>) -> Outcome {
    let node = "f8";
    let instance = world.node(node).await?;
    let handle = world.volume("f8").await?;
    world.run_pod("f8-0", node, &["f8"]).await?;
    // Before Kubernetes marks the node not Ready.
    world.driver.power(&instance, "stop")?;
    world.driver.power(&instance, "start")?;
    world.nodes.stop_heartbeats(node);
    world.check_left_alone(node, "f8-0", &handle, &instance).await?;
    world.delete_attachment("f8", node).await?;
    world.wait_until_refused("f8", node, "node-not-ready").await?;
    world.check_untouched(node, &handle, &instance).await?;
    // The new boot registers while the detach is tried: in either order, the volume stays attached.
    let (registered, refused) = tokio::join!(
        world.nodes.boot(node, "boot-2"),
        world.wait_until_refused("f8", node, "in-use")
    );
    registered?;
    refused?;
    world.check_untouched(node, &handle, &instance).await?;
    world.end_pod("f8-0").await?;
    world.nodes.in_use(node, &[]).await?;
    world.retry_until_detached("f8", node).await?;
    world.check_detached_once(&handle, &instance)
}
