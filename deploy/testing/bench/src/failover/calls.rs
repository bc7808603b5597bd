//! The cost of evidence while nodes are suspect and nothing is proved.

use std::time::{Duration, Instant};

use super::testbed::Testbed;
use crate::error::BenchError;
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic, Target};

pub(super) async fn measure(testbed: &mut Testbed, extent: Extent) -> Result<Figure, BenchError> {
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
    let mut figure = Figure::new(
        "failover-calls",
        "EC2 requests for evidence per second while nodes are suspect",
        "1/s",
    )
    .target(Target::at_most(Statistic::Greatest, 1.0))
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
