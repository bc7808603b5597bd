//! Instances that are stopped so that their nodes are proved dead.

use serde_json::json;

use crate::environment::world::{TestResult, World, ensure, patch, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("opted_in_node_is_fenced_when_checks_fail", fenced(world))]
}

pub(super) async fn permit(world: &World<'_>, node: &str) -> TestResult {
    let label = json!({"metadata": {"labels": {"ebs.csi.aws.com/fence": "true"}}});
    patch(&world.all_nodes(), node, label).await
}

/// Like F9, on a node whose instance may be fenced: while EC2's status checks pass, the node counts
/// as cut off and is left alone; once they fail, the instance is stopped.
async fn fenced(world: &World<'_>) -> TestResult {
    let at = world.attached("fence", "fence").await?;
    permit(world, &at.node).await?;
    let set_checks = |found: &str| world.driver.checks(&at.instance, &json!({"instance": found}));
    // Waits for an event that says that the node is left alone, why, and what EC2 reports.
    let is_held = async |why: &str, said: &str| {
        wait_until(&format!("the event has {why}, {said}"), || async {
            let held = world.events(&at.node, "FenceHeld").await?;
            Ok(held.iter().any(|note| note.contains(why) && note.contains(said)))
        })
        .await
    };
    set_checks("insufficient-data")?;
    at.fall_silent().await?;
    is_held("nobody knows", "instance insufficient-data").await?;
    set_checks("ok")?;
    is_held("only cut off", "system ok, instance ok").await?;
    let line = "aws_ebs_csi_safe_detach_failover_left_alone{reason=\"checks-pass\"}";
    world.wait_for_metric(line).await?;
    let sent = world.driver.stop_requests(&at.instance)?;
    ensure(sent == 0, "no stop was sent, not even as a dry run")?;
    at.check_untouched().await?;

    set_checks("impaired")?;
    at.wait_for_event("FenceRequested").await?;
    at.wait_until_tainted().await?;
    at.wait_until_pod_gone().await?;
    at.wait_until_detached().await?;
    let sent = world.driver.stop_requests(&at.instance)?;
    ensure(sent >= 2, "a dry run and a stop were sent")?;
    at.start_again().await
}
