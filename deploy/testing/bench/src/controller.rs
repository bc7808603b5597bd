//! The controller's figures. Each is measured with this driver's controller and, where one is
//! given, with another driver's, in turns.

mod added;
mod burst;
mod ceiling;
mod detaches;
mod load;
mod memory;
mod rates;
mod safe_detach;
mod simulator;
mod start;

use ebs_csi_sandbox::binaries::Binaries;

use crate::contestant::contestants;
use crate::error::Result;
use crate::extent::Run;
use crate::report::figure::Figure;

/// The names of the measurements, in their order.
pub(crate) const MEASUREMENTS: &[&str] = &[
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

pub(crate) async fn measure(binaries: &Binaries, run: &Run, name: &str) -> Result<Vec<Figure>> {
    let contestants = contestants(binaries, run, "controller");
    let extent = run.extent();
    match name {
        "start" => start::measure(&contestants, extent).await,
        "memory" => memory::measure(&contestants, extent).await,
        "ceiling" => ceiling::measure(&contestants, extent).await,
        "added" => added::measure(&contestants, extent).await,
        "detaches" => detaches::measure(&contestants, extent).await,
        "safe-detach" => safe_detach::measure(&contestants[0], extent).await,
        "rates" => rates::measure(&contestants, extent).await,
        "burst" => burst::measure(&contestants, extent).await,
        "simulator" => simulator::measure(&contestants[0], extent).await,
        // Only this driver: another driver may take a second for each call, so a million calls take
        // days.
        _ => memory::growth(&contestants[0], extent).await,
    }
}
