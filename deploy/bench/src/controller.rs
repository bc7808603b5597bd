//! The controller's figures. Each is measured with this driver's controller and, where one is given, with another's, in turns.

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

use std::path::PathBuf;

use ebs_csi_sandbox::binaries::Binaries;

use crate::error::BenchError;
use crate::extent::{Extent, chosen};
use crate::report::figure::Figure;
use contestant::Contestant;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Names of measurements; empty: all.
    pub only: Vec<String>,
    /// Another driver's program.
    pub peer: Option<PathBuf>,
    /// How much.
    pub extent: Extent,
}

impl Wanted {
    /// ` --peer-bin NAME`, when there is another driver: what a command line says beside the rest.
    pub fn peer_option(&self) -> String {
        let name = self.peer.as_ref().and_then(|path| path.file_name());
        name.map_or(String::new(), |name| {
            format!(" --peer-bin {}", name.to_string_lossy())
        })
    }
}

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

/// Measures what is wanted; each figure goes to `take` as soon as it is there.
///
/// # Errors
/// The first measurement that could not be made, a name that is none, or what `take` says.
pub async fn measure(
    binaries: &Binaries,
    wanted: &Wanted,
    take: &mut dyn FnMut(Vec<Figure>) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut contestants = vec![Contestant::ours(binaries)];
    contestants.extend(
        wanted
            .peer
            .clone()
            .map(|path| Contestant::peer(binaries, path)),
    );
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
            // Another driver may take a second for each call: a day for a million.
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
