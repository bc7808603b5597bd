//! Failover at 5,000 nodes: the cost of node-lifecycle and of evidence, and the time until failover
//! acts on a dead node.
//!
//! The controller, node-lifecycle and simulated EC2 are processes; the API server runs in this
//! process (`crate::api_server`).

mod calls;
mod churn;
mod decision;
mod joining;
mod memory;
mod testbed;

use ebs_csi_sandbox::binaries::Binaries;

use crate::error::BenchError;
use crate::extent::{Extent, Take, Wanted, chosen};
use crate::report::figure::Figure;
use testbed::{Size, Testbed};

/// The names of the measurements, in their order.
pub const MEASUREMENTS: [&str; 2] = ["steady", "churn"];

/// Makes the wanted measurements and passes each figure to `take` as soon as it is known.
///
/// # Errors
/// Returns an error for the first measurement that fails or an unknown name, and the errors of
/// `take`.
pub async fn measure(
    binaries: &Binaries,
    wanted: &Wanted,
    take: &mut Take<'_>,
) -> Result<(), BenchError> {
    let extent = wanted.extent;
    for name in chosen(&wanted.only, &MEASUREMENTS)? {
        println!("failover: {name}");
        let figures = match name {
            "steady" => steady(binaries, extent).await?,
            _ => churn::measure(binaries, extent).await?,
        };
        let command = format!("./deploy/bench/run failover --only {name}{}", extent.option());
        take(Figure::made_by(&command, figures))?;
    }
    Ok(())
}

/// Measures one cluster while all nodes are healthy, while nodes join, while many nodes are
/// suspect, and while nodes die.
async fn steady(binaries: &Binaries, extent: Extent) -> Result<Vec<Figure>, BenchError> {
    let size = Size {
        nodes: extent.of(60, 5_000, 5_000),
        volumes_per_node: 4,
        pods_without_volumes: extent.of(60, 30_000, 30_000),
        query_seconds: extent.of(1, 3, 3),
    };
    let mut testbed = Testbed::start(binaries, size).await?;
    let memory =
        memory::measure(&mut testbed, "failover-memory", "memory of node-lifecycle, failover on");
    let mut figures = vec![memory.await?.target(memory::target())];
    figures.push(joining::measure(&testbed, extent).await?);
    figures.push(calls::measure(&mut testbed, extent).await?);
    figures.push(decision::measure(&mut testbed, extent).await?);
    testbed.end().await?;
    Ok(figures)
}
