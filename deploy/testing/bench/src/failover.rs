//! Failover at 5,000 nodes: the cost of node-lifecycle and of evidence, and the time until failover
//! acts on a dead node.
//!
//! The controller, node-lifecycle and simulated EC2 are processes; the API server runs in this
//! process (`crate::api_server`).

mod churn;
mod steady;
mod testbed;

use ebs_csi_sandbox::binaries::Binaries;

use crate::error::Result;
use crate::extent::Extent;
use crate::report::figure::Figure;

/// The names of the measurements, in their order.
pub(crate) const MEASUREMENTS: &[&str] = &["steady", "churn"];

pub(crate) async fn measure(
    binaries: &Binaries,
    extent: Extent,
    name: &str,
) -> Result<Vec<Figure>> {
    match name {
        "steady" => steady::measure(binaries, extent).await,
        _ => churn::measure(binaries, extent).await,
    }
}
