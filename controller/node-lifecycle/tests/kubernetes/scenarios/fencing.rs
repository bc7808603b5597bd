//! Instances that are stopped so that their nodes are proved dead.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::{Scenario, instance};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("opted_in_node_is_fenced_when_checks_fail", fenced(world))]
}

/// Like F9, on a node whose instance may be fenced: while EC2's status checks pass, the node counts
/// as cut off and is left alone; once they fail, the instance is stopped.
async fn fenced(world: &World<'_>) -> Outcome {
    let handle = world.volume("fence").await?;
    world.run_pod("fence-0", "node-13", &["fence"]).await?;
    let label = json!({"metadata": {"labels": {"ebs.csi.aws.com/fence": "true"}}});
    let how = PatchParams::default();
    let patched = world.all_nodes().patch("node-13", &how, &Patch::Merge(label)).await;
    patched.map_err(|e| e.to_string())?;
    let found = json!({"instance": "insufficient-data"});
    world.driver.checks(&instance(13), &found)?;
    world.nodes.stop_heartbeats("node-13");
    world.wait_until_not_ready("node-13").await?;
    is_held(world, "nobody knows", "instance insufficient-data").await?;
    world.driver.checks(&instance(13), &json!({"instance": "ok"}))?;
    is_held(world, "only cut off", "system ok, instance ok").await?;
    let line = "aws_ebs_csi_safe_detach_failover_left_alone{reason=\"checks-pass\"}";
    wait_until("it is counted", || async { Ok(world.driver.metric(line) >= 1.0) }).await?;
    ensure(
        world.driver.stop_requests(&instance(13))? == 0,
        "not even whether it may be stopped was asked",
    )?;
    world.check_untouched("node-13", &handle, &instance(13)).await?;

    let found = json!({"instance": "impaired"});
    world.driver.checks(&instance(13), &found)?;
    world.wait_for_event("node-13", "FenceRequested").await?;
    wait_until("our taint is on node-13", || async {
        Ok(world.taints("node-13").await? == ["ebs-safe-detach"])
    })
    .await?;
    world.wait_until_pod_gone("fence-0").await?;
    world.wait_until_detached("fence", "node-13", &handle, &instance(13)).await?;
    ensure(world.driver.stop_requests(&instance(13))? >= 2, "a dry run and a stop were sent")?;
    world.nodes.in_use("node-13", &[]).await?;
    world.driver.power(&instance(13), "start")?;
    world.nodes.boot("node-13", "boot-2").await
}

/// Waits for an event that says that the node is left alone, why, and what EC2 reports.
async fn is_held(world: &World<'_>, why: &str, said: &str) -> Outcome {
    wait_until(&format!("it is told: {why}, {said}"), || async {
        let held = world.events("node-13", "FenceHeld").await?;
        let tells = |note: &String| note.contains(why) && note.contains(said);
        Ok(held.iter().any(tells))
    })
    .await
}
