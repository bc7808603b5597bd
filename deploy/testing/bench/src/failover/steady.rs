//! One cluster while all nodes are healthy, while nodes join, while many nodes are suspect and
//! nothing is proved, and while nodes die.

use std::ops::Range;
use std::time::{Duration, Instant};

use ebs_csi_sandbox::binaries::Binaries;
use serde_json::{Value, json};

use super::testbed::{Size, Testbed, is_tainted, node_name, register};
use crate::api_server::{self, Store, kind};
use crate::error::Result;
use crate::extent::Extent;
use crate::process_usage::{MEMORY_KINDS, memory_kinds, memory_mib, peak_mib};
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::instance;

const STARTUP_TAINT: &str = "ebs.csi.aws.com/agent-not-ready";
/// The wait after which the memory for the lists has been freed.
const STILL: Duration = Duration::from_secs(3);

pub(super) async fn measure(binaries: &Binaries, extent: Extent) -> Result<Vec<Figure>> {
    let size = Size {
        nodes: extent.of(60, 5_000, 5_000),
        volumes_per_node: 4,
        pods_without_volumes: extent.of(60, 30_000, 30_000),
        query_seconds: extent.of(1, 3, 3),
    };
    let mut testbed = Testbed::start(binaries, size).await?;
    let memory = memory(&mut testbed, "failover-memory", "memory of node-lifecycle, failover on");
    // The target applies to this cluster only.
    let mut figures = vec![memory.await?.at_most(Statistic::Median, 40.0)];
    figures.push(joining(&testbed, extent).await?);
    figures.push(calls(&mut testbed, extent).await?);
    figures.push(decision(&testbed, extent).await?);
    testbed.end().await?;
    Ok(figures)
}

/// Measures node-lifecycle's memory while all nodes are healthy.
pub(super) async fn memory(testbed: &mut Testbed, key: &str, title: &str) -> Result<Figure> {
    let size = testbed.size;
    let volumes = size.nodes * size.volumes_per_node;
    tokio::time::sleep(STILL).await;
    let pid = testbed.pid();
    let mut figure = Figure::new(key, title, "MiB")
        .note(format!(
            "Proportional set size of the leader, 3 seconds after everything was listed: {} nodes, {} pods of which {volumes} have a volume, {volumes} PersistentVolumes, {volumes} VolumeAttachments, with all the fields that a cluster's objects have. The API server is the bench's own, over plain HTTP: what TLS holds for each connection is not in it.",
            size.nodes,
            volumes + size.pods_without_volumes,
        ))
        .row(Role::Ours, "driver", vec![memory_mib(&[pid])]);
    for (kind, mib) in MEMORY_KINDS.into_iter().zip(memory_kinds(pid)?) {
        figure = figure.row(Role::Part, &format!("driver: {kind}"), vec![mib]);
    }
    testbed.relist().await?;
    tokio::time::sleep(STILL).await;
    let peak = vec![peak_mib(pid)?];
    Ok(figure.row(Role::Part, "driver: after all was listed anew", vec![memory_mib(&[pid])]).row(
        Role::Part,
        "driver: greatest resident set",
        peak,
    ))
}

/// Measures the time from a node's registration of the driver to the removal of its startup taint.
async fn joining(testbed: &Testbed, extent: Extent) -> Result<Figure> {
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
    .at_most(Statistic::Greatest, 1.0)
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
async fn registered(testbed: &Testbed, nodes: Range<usize>) -> Result<Vec<f64>> {
    let mut waiting = Vec::new();
    for node in nodes {
        register(&testbed.store, node);
        waiting.push((node, Instant::now()));
    }
    let has_no_taint = |node: &Value| node["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
    testbed.wait_for_each(waiting, Duration::from_millis(5), has_no_taint).await
}

/// Measures the cost of evidence while nodes are suspect and nothing is proved.
async fn calls(testbed: &mut Testbed, extent: Extent) -> Result<Figure> {
    let window = Duration::from_secs(u64::try_from(extent.of(2, 30, 30)).unwrap_or(30));
    let rows = [
        (extent.of(20, 1_000, 1_000), Role::Ours),
        (extent.of(10, 200, 200), Role::Part),
        (1, Role::Part),
    ];
    let most = rows[0].0;
    for node in 0..most {
        testbed.attach_in_ec2(node).await?;
    }
    // A suspect that node-lifecycle knows by the former handles, which EC2 denies, counts for the
    // brake for 10 minutes.
    testbed.relist().await?;
    let mut figure = Figure::new(
        "failover-calls",
        "EC2 requests for evidence per second while nodes are suspect",
        "1/s",
    )
    .at_most(Statistic::Greatest, 1.0)
    .note(format!(
        "DescribeInstances and DescribeVolumes that reached EC2, of {} nodes with {} volumes each, over {} s. The suspects are not Ready, their instances run and show their volumes: nothing is proved, and they are asked about every {} s, more than 200 of them in turns that come sooner. A healthy cluster is not asked about at all.",
        testbed.size.nodes,
        testbed.size.volumes_per_node,
        window.as_secs(),
        testbed.size.query_seconds,
    ));
    for (suspects, role) in rows {
        for node in 0..suspects {
            testbed.ready(node, false, None);
        }
        // The first round of questions is the first in which EC2 is asked about these nodes.
        testbed.answered(2.0).await?;
        let (before, begun) = (testbed.describes().await?, Instant::now());
        tokio::time::sleep(window).await;
        let calls = testbed.describes().await? - before;
        let label = format!("{suspects} suspects");
        figure = figure.row(role, &label, vec![calls / begun.elapsed().as_secs_f64()]);
        for node in 0..suspects {
            testbed.ready(node, true, None);
        }
    }
    // Nothing was proved, so nothing may be changed.
    testbed.expect_patches(std::iter::empty())?;
    Ok(figure)
}

/// Measures the time from the last piece of evidence to the taint at the API server.
async fn decision(testbed: &Testbed, extent: Extent) -> Result<Figure> {
    let single = extent.of(1, 10, 10);
    // With the single nodes, at most one in twenty of the nodes: the limit of the brake.
    let at_once = extent.of(2, 200, 200);
    let mut alone = Vec::new();
    for node in 0..single {
        testbed.ready(node, false, None);
        testbed.answered(1.0).await?;
        alone.extend(power_off(testbed, node..node + 1).await?);
    }
    let rest = single..single + at_once;
    for node in rest.clone() {
        testbed.ready(node, false, None);
    }
    testbed.answered(2.0).await?;
    let before = testbed.describes().await?;
    let together = power_off(testbed, rest).await?;
    let calls = testbed.describes().await? - before;
    Ok(Figure::new(
        "failover-decision",
        "time from \"EC2 shows the instance stopped\" to the taint on its node",
        "s",
    )
    .at_most(Statistic::Greatest, 5.0)
    .note(format!(
        "The nodes have been suspect before; EC2 shows their instances stopped from one moment to the next. Questions are asked every {} s. All at once, they took {calls:.0} EC2 requests together, each looked at again before it was tainted.",
        testbed.size.query_seconds
    ))
    .row(Role::Ours, &format!("{at_once} nodes at once"), together)
    .row(Role::Part, "one node after the other", alone))
}

/// Stops the instances of `nodes` and returns how long each node took to carry node-lifecycle's
/// taint.
async fn power_off(testbed: &Testbed, nodes: Range<usize>) -> Result<Vec<f64>> {
    let mut waiting = Vec::new();
    for node in nodes {
        testbed.power(node, "stop").await?;
        waiting.push((node, Instant::now()));
    }
    testbed.wait_for_each(waiting, Duration::from_millis(20), is_tainted).await
}
