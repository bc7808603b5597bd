//! Nodes that join with the startup taint.

use serde_json::{Value, json};

use crate::environment::world::{TestResult, World, ensure, patch, wait_until};
use crate::scenarios::Scenario;

const STARTUP_TAINT: &str = "ebs.csi.aws.com/agent-not-ready";

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("startup_taint_is_removed_when_driver_registers", joined(world))]
}

async fn joined(world: &World<'_>) -> TestResult {
    let node = "joining";
    let instance = world.instance(&json!({}))?;
    world.nodes.create_without_identity(node).await?;
    let other = json!({"key": "dedicated", "value": "x", "effect": "NoSchedule"});
    set(world, node, &json!([{"key": STARTUP_TAINT, "effect": "NoExecute"}, other])).await?;
    world.wait_for_metric("aws_ebs_csi_onboarding_nodes_waiting").await?;
    ensure(has(world, node, STARTUP_TAINT).await?, "the driver is not there yet")?;
    // Onboarding never ends: the taint is set again, with another effect, and removed again.
    for effect in ["NoExecute", "NoSchedule"] {
        world.nodes.register(node, Some(&instance)).await?;
        wait_until("the startup taint is gone", || async {
            Ok(!has(world, node, STARTUP_TAINT).await?)
        })
        .await?;
        ensure(has(world, node, "dedicated").await?, "another taint stays")?;
        world.nodes.register(node, None).await?;
        set(world, node, &json!([{"key": STARTUP_TAINT, "effect": effect}, other])).await?;
        ensure(has(world, node, STARTUP_TAINT).await?, "the driver has left")?;
    }
    world.nodes.delete(node).await
}

async fn set(world: &World<'_>, node: &str, taints: &Value) -> TestResult {
    patch(&world.all_nodes(), node, json!({"spec": {"taints": taints}})).await
}

async fn has(world: &World<'_>, node: &str, key: &str) -> TestResult<bool> {
    let spec = world.all_nodes().get(node).await?.spec;
    let mut taints = spec.and_then(|spec| spec.taints).into_iter().flatten();
    Ok(taints.any(|taint| taint.key == key))
}
