//! Instances that are powered off to prove their nodes dead.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::{Outcome, World, until};
use crate::scenarios::{Scenario, instance};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new(
        "fenced_by_opt_in_the_instance_is_stopped_and_the_pod_moves",
        fenced(world),
    )]
}

/// As F9 on a node whose instance may be fenced.
async fn fenced(world: &World<'_>) -> Outcome {
    let handle = world.volume("fence").await?;
    world.run_pod("fence-0", "node-13", &["fence"]).await?;
    let label = json!({"metadata": {"labels": {"ebs.csi.aws.com/fence": "true"}}});
    let how = PatchParams::default();
    let patched = world
        .all_nodes()
        .patch("node-13", &how, &Patch::Merge(label))
        .await;
    patched.map_err(|e| e.to_string())?;
    world.nodes.silence("node-13");
    world.is_lost("node-13").await?;
    world.is_told("node-13", "FenceRequested").await?;
    until("our taint is on node-13", || async {
        Ok(world.taints("node-13").await? == ["ebs-safe-detach"])
    })
    .await?;
    world.pod_is_gone("fence-0").await?;
    world
        .is_detached("fence", "node-13", &handle, &instance(13))
        .await?;
    world.nodes.in_use("node-13", &[]).await?;
    world.driver.power(&instance(13), "start")?;
    world.nodes.boot("node-13", "boot-2").await
}
