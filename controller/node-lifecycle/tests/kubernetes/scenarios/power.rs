//! Instances that are powered off, and what EC2 shows of them.

use std::time::Duration;

use kube::ResourceExt;

use crate::environment::attached::Attached;
use crate::environment::world::{TestResult, World, ensure};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F1_powered_off_node_fails_over_and_returns", powered_off(world)),
        Scenario::new("F2_terminated_and_the_node_object_deleted", terminated(world)),
        Scenario::new("F3_stopped", stopped(world)),
    ]
}

async fn fails_over(at: &Attached<'_>) -> TestResult {
    at.wait_until_tainted().await?;
    at.wait_for_event("NodeProvenDown").await?;
    at.wait_until_pod_gone().await?;
    at.wait_until_detached().await
}

/// The instance is powered off: the taint is set, the pod runs elsewhere, and the node returns.
async fn powered_off(world: &World<'_>) -> TestResult {
    let at = world.attached("f1", "f1-a").await?;
    let before = world.pods().get(&at.pod).await?.uid();
    at.power_off()?;
    fails_over(&at).await?;
    // What a StatefulSet and the scheduler would do.
    at.move_to_new("f1-b").await?;
    ensure(world.pods().get(&at.pod).await?.uid() != before, "the pod is another one")?;

    at.release().await?;
    at.power("start")?;
    // A report of the former boot proves nothing.
    at.boot("boot-1").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let taints = at.taints().await?;
    ensure(taints == ["ebs-safe-detach"], "the taint stays until another boot is Ready")?;
    at.boot("boot-2").await?;
    at.wait_until_untainted().await
}

/// The instance is terminated and the cloud controller deletes the Node object: the volume moves
/// without a wait of six minutes.
async fn terminated(world: &World<'_>) -> TestResult {
    let at = world.attached("f2", "f2-a").await?;
    at.power("terminate")?;
    world.nodes.delete(&at.node).await?;
    at.wait_until_pod_gone().await?;
    at.wait_until_detached().await?;
    at.move_to_new("f2-b").await
}

/// Like F1, but the node falls silent first and its instance is stopped later.
async fn stopped(world: &World<'_>) -> TestResult {
    let at = world.attached("f3", "f3").await?;
    at.fall_silent().await?;
    at.wait_for_event("SafeDetachUnproven").await?;
    ensure(at.taints().await?.is_empty(), "no taint without proof")?;
    at.power("stop")?;
    fails_over(&at).await?;
    // The node returns, so that it does not count as suspect.
    at.start_again().await?;
    at.wait_until_untainted().await
}
