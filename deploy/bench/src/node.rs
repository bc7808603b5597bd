//! The node's figures: stage, publish and their reverse against bare system calls, memory, many
//! volumes at once, memory growth.

mod contestant;
mod cycles;
mod growth;
mod idle;
mod parallel;
mod testbed;

use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_wire::FsType;

use crate::error::BenchError;
use crate::extent::{Take, Wanted, chosen};
use crate::report::figure::Figure;
use contestant::Contestant;

/// The names of the measurements, in their order.
pub const MEASUREMENTS: [&str; 5] = ["memory", "ext4", "xfs", "parallel", "growth"];

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
    let mut contestants = vec![Contestant::ours(binaries)];
    contestants.extend(wanted.peer.clone().map(|path| Contestant::peer(binaries, path)));
    for name in chosen(&wanted.only, &MEASUREMENTS)? {
        println!("node: {name}");
        let figures = match name {
            "memory" => vec![idle::measure(&contestants, extent).await?],
            "ext4" => cycles::measure(&contestants, extent, FsType::Ext4).await?,
            "xfs" => cycles::measure(&contestants, extent, FsType::Xfs).await?,
            "parallel" => parallel::measure(&contestants[0], extent).await?,
            _ => vec![growth::measure(&contestants[0], extent).await?],
        };
        let command = format!("./deploy/bench/run node --only {name}{}", extent.option());
        take(Figure::made_by(&command, figures))?;
    }
    Ok(())
}
