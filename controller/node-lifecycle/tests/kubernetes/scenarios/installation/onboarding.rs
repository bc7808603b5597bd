//! Nodes that join with the startup taint.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

const STARTUP_TAINT: &str = "ebs.csi.aws.com/agent-not-ready";

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("startup_taint_goes_when_the_driver_is_ready", joined(world))]
}

async fn joined(world: &World<'_>) -> Outcome {
    let node = "joining";
    let instance = world.instance(&json!({}))?;
    world.nodes.create_without_identity(node).await?;
    let other = json!({"key": "dedicated", "value": "x", "effect": "NoSchedule"});
    set(world, node, &json!([{"key": STARTUP_TAINT, "effect": "NoExecute"}, other])).await?;
    wait_until("the node is counted as waiting", || async {
        let metric = "aws_ebs_csi_onboarding_nodes_waiting";
        Ok(world.driver.metric(metric) >= 1.0)
    })
    .await?;
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

async fn set(world: &World<'_>, node: &str, taints: &Value) -> Outcome {
    let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
    let how = PatchParams::default();
    let patched = world.all_nodes().patch(node, &how, &patch).await;
    patched.map(drop).map_err(|e| e.to_string())
}

async fn has(world: &World<'_>, node: &str, key: &str) -> Result<bool, String> {
    let node = world.all_nodes().get(node).await;
    let spec = node.map_err(|e| e.to_string())?.spec;
    let taints = spec.and_then(|spec| spec.taints).unwrap_or_default();
    Ok(taints.iter().any(|taint| taint.key == key))
}
