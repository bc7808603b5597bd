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
use crate::extent::Extent;
use crate::report::figure::Figure;
use testbed::{Size, Testbed};

/// The names of the measurements, in their order.
pub const MEASUREMENTS: &[&str] = &["steady", "churn"];

/// Makes the measurement `name`, one of [`MEASUREMENTS`].
///
/// # Errors
/// Returns an error when the measurement fails.
pub async fn measure(
    binaries: &Binaries,
    extent: Extent,
    name: &str,
) -> Result<Vec<Figure>, BenchError> {
    match name {
        "steady" => steady(binaries, extent).await,
        _ => churn::measure(binaries, extent).await,
    }
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
