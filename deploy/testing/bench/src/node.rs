//! The node's figures: stage, publish and their reverse against bare system calls, memory, many
//! volumes at once, memory growth.

mod bare;
mod cycles;
mod memory;
mod parallel;
mod testbed;

use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_wire::FsType;

use crate::contestant::contestants;
use crate::error::BenchError;
use crate::extent::Run;
use crate::report::figure::Figure;

/// The names of the measurements, in their order.
pub(crate) const MEASUREMENTS: &[&str] = &["memory", "ext4", "xfs", "parallel", "growth"];

pub(crate) async fn measure(
    binaries: &Binaries,
    run: &Run,
    name: &str,
) -> Result<Vec<Figure>, BenchError> {
    let extent = run.extent();
    let mut contestants = contestants(binaries, run, "node");
    for other in &mut contestants[1..] {
        "other driver".clone_into(&mut other.name);
    }
    match name {
        "memory" => Ok(vec![memory::idle(&contestants, extent).await?]),
        "ext4" => cycles::measure(&contestants, extent, FsType::Ext4).await,
        "xfs" => cycles::measure(&contestants, extent, FsType::Xfs).await,
        "parallel" => parallel::measure(&contestants[0], extent).await,
        _ => Ok(vec![memory::growth(&contestants[0], extent).await?]),
    }
}
