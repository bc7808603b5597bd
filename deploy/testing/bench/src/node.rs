//! The node's figures: stage, publish and their reverse against bare system calls, memory, many
//! volumes at once, memory growth.

mod cycles;
mod growth;
mod idle;
mod parallel;
mod testbed;

use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_wire::FsType;

use crate::contestant::contestants;
use crate::error::BenchError;
use crate::extent::Wanted;
use crate::report::figure::Figure;

/// The names of the measurements, in their order.
pub const MEASUREMENTS: &[&str] = &["memory", "ext4", "xfs", "parallel", "growth"];

/// Makes the measurement `name`, one of [`MEASUREMENTS`].
///
/// # Errors
/// Returns an error when the measurement fails.
pub async fn measure(
    binaries: &Binaries,
    wanted: &Wanted,
    name: &str,
) -> Result<Vec<Figure>, BenchError> {
    let extent = wanted.extent;
    let mut contestants = contestants(binaries, wanted, "node");
    for other in &mut contestants[1..] {
        "other driver".clone_into(&mut other.name);
    }
    match name {
        "memory" => Ok(vec![idle::measure(&contestants, extent).await?]),
        "ext4" => cycles::measure(&contestants, extent, FsType::Ext4).await,
        "xfs" => cycles::measure(&contestants, extent, FsType::Xfs).await,
        "parallel" => parallel::measure(&contestants[0], extent).await,
        _ => Ok(vec![growth::measure(&contestants[0], extent).await?]),
    }
}
