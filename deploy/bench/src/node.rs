//! The node's figures: stage, publish and their reverse against bare system calls, memory, many at once, growth.

mod cycles;
mod growth;
mod idle;
mod parallel;
mod place;

use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_wire::FsType;

use crate::error::BenchError;
use crate::extent::{Extent, chosen};
use crate::figure::Figure;

/// The names of the measurements, in their order.
pub const MEASUREMENTS: [&str; 5] = ["memory", "ext4", "xfs", "parallel", "growth"];

/// Measures what `only` names, all when it names nothing; each figure goes to `take` as soon as it is there.
///
/// # Errors
/// The first measurement that could not be made, a name that is none, or what `take` says.
pub async fn measure(
    binaries: &Binaries,
    only: &[String],
    extent: Extent,
    take: &mut dyn FnMut(Vec<Figure>) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    for name in chosen(only, &MEASUREMENTS)? {
        println!("node: {name}");
        let figures = match name {
            "memory" => vec![idle::measure(binaries, extent).await?],
            "ext4" => cycles::measure(binaries, extent, FsType::Ext4).await?,
            "xfs" => cycles::measure(binaries, extent, FsType::Xfs).await?,
            "parallel" => parallel::measure(binaries, extent).await?,
            _ => vec![growth::measure(binaries, extent).await?],
        };
        let command = format!("./deploy/bench/run node --only {name}{}", extent.option());
        take(
            figures
                .into_iter()
                .map(|figure| figure.command(&command))
                .collect(),
        )?;
    }
    Ok(())
}
