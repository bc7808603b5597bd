//! Measures the time from a node's registration of the driver to the removal of its startup taint.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::testbed::{Testbed, node_name, register};
use crate::api_server::{self, Store, kind};
use crate::error::BenchError;
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic, Target};
use crate::world::instance;

const STARTUP_TAINT: &str = "ebs.csi.aws.com/agent-not-ready";

pub(super) async fn measure(testbed: &Testbed, extent: Extent) -> Result<Figure, BenchError> {
    let single = extent.of(2, 50, 50);
    let at_once = extent.of(3, 25, 25);
    let first = testbed.size.nodes;
    testbed.store.take_changes();
    let mut alone = Vec::new();
    for node in first..first + single {
        join(&testbed.store, node);
        // The registrations fall on different moments of node-lifecycle's pause.
        let pause = 700 + u64::try_from(node * 137 % 500).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        alone.extend(registered(testbed, node..node + 1).await?);
    }
    let rest = first + single..first + single + at_once;
    for node in rest.clone() {
        join(&testbed.store, node);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let together = registered(testbed, rest.clone()).await?;
    testbed.expect_patches(first..rest.end)?;
    Ok(Figure::new(
        "startup-taint",
        "time from the CSINode with the driver's count to the removal of the startup taint",
        "s",
    )
    .target(Target::at_most(Statistic::Greatest, 1.0))
    .note(format!(
        "Nodes with the startup taint join a cluster of {first} nodes. node-lifecycle patched each of their Nodes once, and nothing else."
    ))
    .row(Role::Ours, "one node after the other", alone)
    .row(Role::Part, &format!("{at_once} nodes at once"), together))
}

/// Adds a node that carries the startup taint and has no CSINode.
fn join(store: &Store, node: usize) {
    let name = node_name(node);
    let mut object = api_server::node(&name, &instance(node), "boot-1", true);
    object["spec"]["taints"] = json!([{"key": STARTUP_TAINT, "effect": "NoExecute"}]);
    store.put(kind::NODES, object);
}

/// Registers the driver at these nodes. Returns the seconds until each of them has no taint.
async fn registered(
    testbed: &Testbed,
    nodes: std::ops::Range<usize>,
) -> Result<Vec<f64>, BenchError> {
    let mut waiting = Vec::new();
    for node in nodes {
        register(&testbed.store, node);
        waiting.push((node, Instant::now()));
    }
    let has_no_taint = |node: &Value| node["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
    testbed.wait_for_each(waiting, Duration::from_millis(5), has_no_taint).await
}
