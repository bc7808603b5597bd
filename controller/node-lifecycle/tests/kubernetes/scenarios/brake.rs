//! More nodes fail at once than failover may act on.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::{EXTRA_NODES, Scenario, instance};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("F40_F41_too_many_nodes_at_once", too_many(world))]
}

/// First more than half of every zone is silent, with a stopped instance among them; then fewer
/// nodes, but the brake's share is used up; then the kill switch is on; then nothing holds failover
/// back.
async fn too_many(world: &World<'_>) -> Outcome {
    world.volume("f40").await?;
    world.run_pod("f40-0", "node-9", &["f40"]).await?;
    let alive_nodes: Vec<String> =
        world.nodes.alive_nodes().into_keys().filter(|name| name != "node-9").collect();
    for name in &alive_nodes {
        world.nodes.stop_heartbeats(name);
    }
    world.wait_until_not_ready(&format!("beside-{}", EXTRA_NODES - 1)).await?;
    world.driver.power(&instance(9), "stop")?;
    world.nodes.stop_heartbeats("node-9");
    world.wait_until_not_ready("node-9").await?;
    let held = |why: &'static str| {
        let line = format!("aws_ebs_csi_safe_detach_failover_held{{reason=\"{why}\"}}");
        wait_until_held(world, why, line)
    };
    held("outage").await?;
    ensure(world.taints("node-9").await?.is_empty(), "no taint in an outage")?;
    // More than one in twenty of all nodes: as many as there are additional nodes.
    let now = jiff::Timestamp::now();
    let beside = (0..EXTRA_NODES).map(|number| (format!("beside-{number:02}"), json!(now)));
    let journal: serde_json::Map<_, _> = beside.collect();
    set_journal(world, &serde_json::Value::from(journal).to_string()).await?;
    for name in &alive_nodes {
        world.nodes.boot(name, "boot-1").await?;
    }
    held("cluster-share").await?;
    ensure(world.taints("node-9").await?.is_empty(), "no taint beyond the share")?;
    world.kill_switch(true).await?;
    set_journal(world, "{}").await?;
    held("kill-switch").await?;
    ensure(world.taints("node-9").await?.is_empty(), "no taint while it is stopped")?;
    world.kill_switch(false).await?;
    wait_until("our taint is on node-9", || async {
        Ok(world.taints("node-9").await? == ["ebs-safe-detach"])
    })
    .await
}

async fn wait_until_held(world: &World<'_>, why: &str, line: String) -> Outcome {
    wait_until(&format!("a node is held: {why}"), || async {
        Ok(world.driver.metric(&line) >= 1.0)
    })
    .await
}

/// Clears the journal, as if ten minutes had passed: earlier actions do not count any more.
pub(crate) async fn clear_journal(world: &World<'_>) -> Outcome {
    wait_until("somebody leads", || async { Ok(world.leader().await?.is_some()) }).await?;
    set_journal(world, "{}").await
}

/// Replaces the journal from which the leader counts against the brake: the nodes that were acted
/// on, and when.
async fn set_journal(world: &World<'_>, text: &str) -> Outcome {
    use k8s_openapi::api::coordination::v1::Lease;
    let leases: kube::Api<Lease> = kube::Api::namespaced(world.admin.clone(), "kube-system");
    let patch = json!({"metadata": {"annotations": {"ebs.csi.aws.com/acted-on": text}}});
    let how = PatchParams::default();
    let patched = leases.patch("ebs-csi-node-lifecycle", &how, &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|e| e.to_string())
}
