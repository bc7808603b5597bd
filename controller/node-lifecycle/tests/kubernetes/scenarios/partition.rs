//! Partitions between the components.

use std::time::Duration;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::{Scenario, instance};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F9_partition_of_running_instance_heals", cut_off(world)),
        Scenario::new("refused_detach_is_retried_when_node_returns", back(world)),
    ]
}

/// Only the API server loses contact with the node: nothing is done, and the node recovers by
/// itself.
async fn cut_off(world: &World<'_>) -> Outcome {
    let handle = world.volume("f9").await?;
    world.run_pod("f9-0", "node-5", &["f9"]).await?;
    world.nodes.stop_heartbeats("node-5");
    world.wait_until_not_ready("node-5").await?;
    world.wait_for_event("node-5", "SafeDetachUnproven").await?;
    wait_until("Kubernetes asks the pod to end", || async {
        let pod = world.pods().get("f9-0").await.map_err(|e| e.to_string())?;
        Ok(pod.metadata.deletion_timestamp.is_some())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure(world.taints("node-5").await?.is_empty(), "no taint")?;
    ensure(world.pods().get("f9-0").await.is_ok(), "the pod's object stays")?;
    ensure(world.is_kept("f9", "node-5").await?, "its attachment stays")?;
    ensure(world.driver.is_attached(&handle, &instance(5))?, "its volume stays")?;
    world.nodes.boot("node-5", "boot-1").await?;
    wait_until("node-5 is Ready again", || world.is_ready("node-5")).await
}

/// A detach that is refused while the node is cut off ends soon after the node is Ready again.
async fn back(world: &World<'_>) -> Outcome {
    let node = "back";
    let instance = world.node(node).await?;
    let handle = world.volume("back").await?;
    world.run_pod("back-0", node, &["back"]).await?;
    world.nodes.stop_heartbeats(node);
    world.wait_until_not_ready(node).await?;
    world.delete_attachment("back", node).await?;
    world.wait_until_refused("back", node, "node-not-ready").await?;
    world.check_untouched(node, &handle, &instance).await?;
    // kubelet ends the pod and unmounts.
    world.end_pod("back-0").await?;
    world.nodes.in_use(node, &[]).await?;
    world.nodes.boot(node, "boot-1").await?;
    world.wait_until_detached_by_retry("back", node).await?;
    world.check_detached_once(&handle, &instance)
}
