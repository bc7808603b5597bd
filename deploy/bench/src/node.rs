//! The node's figures: stage, publish and their reverse against bare system calls, memory, many at once, growth.

mod cycles;
mod growth;
mod idle;
mod parallel;
mod place;

use ebs_csi_sandbox::binaries::Binaries;

use crate::error::BenchError;
use crate::extent::Extent;
use crate::figure::Figure;

/// Measures all; each figure goes to `take` as soon as it is there.
///
/// # Errors
/// The first measurement that could not be made, or what `take` says.
pub async fn measure(
    binaries: &Binaries,
    extent: Extent,
    take: &mut dyn FnMut(Vec<Figure>) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let command = format!("./deploy/bench/run node{}", extent.option());
    let mut take = |figures: Vec<Figure>| {
        take(
            figures
                .into_iter()
                .map(|figure| figure.command(&command))
                .collect(),
        )
    };
    println!("node: memory");
    take(vec![idle::measure(binaries, extent).await?])?;
    for kind in [ebs_csi_wire::FsType::Ext4, ebs_csi_wire::FsType::Xfs] {
        println!("node: cycles of {}", kind.as_str());
        take(cycles::measure(binaries, extent, kind).await?)?;
    }
    println!("node: parallel stages in 64 MiB");
    take(parallel::measure(binaries, extent).await?)?;
    println!("node: growth");
    take(vec![growth::measure(binaries, extent).await?])
}
