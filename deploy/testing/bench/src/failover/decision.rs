//! Measures the time from the last piece of evidence to the taint at the API server.

use std::time::{Duration, Instant};

use super::testbed::{Testbed, is_tainted};
use crate::error::BenchError;
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic, Target};

pub(super) async fn measure(testbed: &mut Testbed, extent: Extent) -> Result<Figure, BenchError> {
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
    .target(Target::at_most(Statistic::Greatest, 5.0))
    .note(format!(
        "The nodes have been suspect before; EC2 shows their instances stopped from one moment to the next. Questions are asked every {} s. All at once, they took {calls:.0} EC2 requests together, each looked at again before it was tainted.",
        testbed.size.query_seconds
    ))
    .row(Role::Ours, &format!("{at_once} nodes at once"), together)
    .row(Role::Part, "one node after the other", alone))
}

/// Stops the instances of `nodes` and returns how long each node took to carry node-lifecycle's
/// taint.
async fn power_off(
    testbed: &Testbed,
    nodes: std::ops::Range<usize>,
) -> Result<Vec<f64>, BenchError> {
    let mut waiting = Vec::new();
    for node in nodes {
        testbed.power(node, "stop").await?;
        waiting.push((node, Instant::now()));
    }
    testbed.wait_for_each(waiting, Duration::from_millis(20), is_tainted).await
}
