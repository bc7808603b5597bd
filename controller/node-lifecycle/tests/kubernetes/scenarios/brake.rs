//! More nodes fail at once than failover may act on.

use serde_json::{Map, Value, json};

use crate::environment::world::{TestResult, World, ensure, patch, wait_until};
use crate::scenarios::{EXTRA_NODES, Scenario};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("F40_F41_too_many_nodes_at_once", too_many(world))]
}

/// First more than half of every zone is silent, with a stopped instance among them; then fewer
/// nodes, but the brake's share is used up; then the kill switch is on; then nothing holds failover
/// back.
async fn too_many(world: &World<'_>) -> TestResult {
    let dead = world.attached("f40", "f40").await?;
    let alive_nodes: Vec<String> =
        world.nodes.alive_nodes().into_keys().filter(|name| *name != dead.node).collect();
    for name in &alive_nodes {
        world.nodes.stop_heartbeats(name);
    }
    world.wait_until_not_ready(&format!("beside-{}", EXTRA_NODES - 1)).await?;
    dead.power_off()?;
    dead.wait_until_not_ready().await?;
    let is_held = async |why: &str| {
        let line = format!("aws_ebs_csi_safe_detach_failover_held{{reason=\"{why}\"}}");
        world.wait_for_metric(&line).await?;
        ensure(dead.taints().await?.is_empty(), &format!("no taint while the node is held: {why}"))
    };
    is_held("outage").await?;
    // More than one in twenty of all nodes: as many as there are additional nodes.
    let now = jiff::Timestamp::now();
    let beside = (0..EXTRA_NODES).map(|number| (format!("beside-{number:02}"), json!(now)));
    let journal: Map<_, _> = beside.collect();
    set_journal(world, &Value::from(journal).to_string()).await?;
    for name in &alive_nodes {
        world.nodes.boot(name, "boot-1").await?;
    }
    is_held("cluster-share").await?;
    world.kill_switch(true).await?;
    set_journal(world, "{}").await?;
    is_held("kill-switch").await?;
    world.kill_switch(false).await?;
    dead.wait_until_tainted().await
}

/// Clears the journal, as if ten minutes had passed: earlier actions do not count any more.
pub(crate) async fn clear_journal(world: &World<'_>) -> TestResult {
    wait_until("somebody leads", || async { Ok(world.leader().await?.is_some()) }).await?;
    set_journal(world, "{}").await
}

/// Replaces the journal from which the leader counts against the brake: the nodes that were acted
/// on, and when.
async fn set_journal(world: &World<'_>, text: &str) -> TestResult {
    let journal = json!({"metadata": {"annotations": {"ebs.csi.aws.com/acted-on": text}}});
    patch(&world.leases(), "ebs-csi-node-lifecycle", journal).await
}
