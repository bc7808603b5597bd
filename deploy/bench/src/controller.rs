//! The controller's figures. Each is measured with this driver's controller and, where one is
//! given, with another driver's, in turns.

mod added;
mod burst;
mod ceiling;
mod contestant;
mod detaches;
mod load;
mod memory;
mod rates;
mod safe_detach;
mod simulator;
mod start;

use ebs_csi_sandbox::binaries::Binaries;

use crate::error::BenchError;
use crate::extent::{Take, Wanted, chosen};
use crate::report::figure::Figure;
use contestant::Contestant;

/// The names of the measurements, in their order.
pub const MEASUREMENTS: [&str; 10] = [
    "start",
    "memory",
    "ceiling",
    "added",
    "detaches",
    "burst",
    "rates",
    "safe-detach",
    "simulator",
    "growth",
];

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
    let mut contestants = vec![Contestant::ours(binaries)];
    contestants.extend(wanted.peer.clone().map(|path| Contestant::peer(binaries, path)));
    let extent = wanted.extent;
    for name in chosen(&wanted.only, &MEASUREMENTS)? {
        println!("controller: {name}");
        let figures = match name {
            "start" => start::measure(&contestants, binaries, extent).await?,
            "memory" => memory::measure(&contestants, extent).await?,
            "ceiling" => ceiling::measure(&contestants, binaries, extent).await?,
            "added" => added::measure(&contestants, extent).await?,
            "detaches" => detaches::measure(&contestants, extent).await?,
            "safe-detach" => safe_detach::measure(&contestants[0], extent).await?,
            "rates" => rates::measure(&contestants, extent).await?,
            "burst" => burst::measure(&contestants, extent).await?,
            "simulator" => simulator::measure(&contestants[0], extent).await?,
            // Only this driver: another driver may take a second for each call, so a million calls
            // take days.
            _ => memory::growth(&contestants[..1], extent).await?,
        };
        let command = format!(
            "./deploy/bench/run controller --only {name}{}{}",
            extent.option(),
            wanted.peer_option()
        );
        take(Figure::made_by(&command, figures))?;
    }
    Ok(())
}
