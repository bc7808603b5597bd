//! Instances that are powered off, and what EC2 shows of them.

use std::time::Duration;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::{Scenario, instance};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F1_powered_off_node_fails_over_and_returns", powered_off(world)),
        Scenario::new("F2_terminated_and_the_node_object_deleted", terminated(world)),
        Scenario::new("F3_stopped", stopped(world)),
    ]
}

/// The instance is powered off: the taint is set, the pod runs elsewhere, and the node returns.
async fn powered_off(world: &World<'_>) -> Outcome {
    let handle = world.volume("f1").await?;
    world.run_pod("f1-0", "node-1", &["f1"]).await?;
    let before = world.uid("f1-0").await?;
    world.driver.power(&instance(1), "stop")?;
    world.nodes.stop_heartbeats("node-1");
    wait_until("our taint is on node-1", || async {
        Ok(world.taints("node-1").await? == ["ebs-safe-detach"])
    })
    .await?;
    world.wait_for_event("node-1", "NodeProvenDown").await?;
    world.wait_until_pod_gone("f1-0").await?;
    world.wait_until_detached("f1", "node-1", &handle, &instance(1)).await?;
    // What a StatefulSet and the scheduler would do.
    world.run_pod("f1-0", "node-2", &["f1"]).await?;
    ensure(world.uid("f1-0").await? != before, "the pod is another one")?;
    ensure(
        world.driver.is_attached(&handle, &instance(2))?,
        "the volume is at the other instance",
    )?;

    world.nodes.in_use("node-1", &[]).await?;
    world.driver.power(&instance(1), "start")?;
    // A report of the former boot proves nothing.
    world.nodes.boot("node-1", "boot-1").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure(
        world.taints("node-1").await? == ["ebs-safe-detach"],
        "the taint stays until another boot is Ready",
    )?;
    world.nodes.boot("node-1", "boot-2").await?;
    wait_until("the taint is lifted", || async { Ok(world.taints("node-1").await?.is_empty()) })
        .await
}

/// The instance is terminated and the cloud controller deletes the Node object: the volume moves
/// without a wait of six minutes.
async fn terminated(world: &World<'_>) -> Outcome {
    let handle = world.volume("f2").await?;
    world.run_pod("f2-0", "node-3", &["f2"]).await?;
    world.driver.power(&instance(3), "terminate")?;
    world.nodes.delete("node-3").await?;
    world.wait_until_pod_gone("f2-0").await?;
    world.wait_until_detached("f2", "node-3", &handle, &instance(3)).await?;
    world.run_pod("f2-0", "node-2", &["f2"]).await
}

/// Like F1, but the node falls silent first and its instance is stopped later.
async fn stopped(world: &World<'_>) -> Outcome {
    let handle = world.volume("f3").await?;
    world.run_pod("f3-0", "node-4", &["f3"]).await?;
    world.nodes.stop_heartbeats("node-4");
    world.wait_until_not_ready("node-4").await?;
    world.wait_for_event("node-4", "SafeDetachUnproven").await?;
    ensure(world.taints("node-4").await?.is_empty(), "no taint without proof")?;
    world.driver.power(&instance(4), "stop")?;
    wait_until("our taint is on node-4", || async {
        Ok(world.taints("node-4").await? == ["ebs-safe-detach"])
    })
    .await?;
    world.wait_until_pod_gone("f3-0").await?;
    world.wait_until_detached("f3", "node-4", &handle, &instance(4)).await?;
    // The node returns, so that it does not count as suspect.
    world.nodes.in_use("node-4", &[]).await?;
    world.driver.power(&instance(4), "start")?;
    world.nodes.boot("node-4", "boot-2").await?;
    wait_until("the taint is lifted", || async { Ok(world.taints("node-4").await?.is_empty()) })
        .await
}
