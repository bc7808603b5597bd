//! The node's figures: stage, publish and their reverse, restore and expansion against bare system
//! calls and programs, memory, many volumes at once, memory growth.

pub(crate) mod bare;
mod cycles;
mod memory;
mod parallel;
mod restore;
mod testbed;

use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_wire::FsType;

use crate::contestant::contestants;
use crate::delay::{self, Latency};
use crate::error::Result;
use crate::extent::Run;
use crate::report::figure::{Figure, Role};

/// The names of the measurements, in their order.
pub(crate) const MEASUREMENTS: &[&str] =
    &["memory", "ext4", "xfs", "restore", "parallel", "growth"];

/// Those of [`MEASUREMENTS`] that the latency of the disks changes.
pub(crate) const OF_LATENCY: &[&str] = &["ext4", "xfs", "restore"];

pub(crate) async fn measure(binaries: &Binaries, run: &Run, name: &str) -> Result<Vec<Figure>> {
    let (extent, latency) = (run.extent(), run.latency);
    let delayed =
        latency.map(|latency| delay::measured(binaries, latency).map(|note| (latency, note)));
    let delayed = delayed.transpose()?;
    let mut contestants = contestants(binaries, run, "node");
    for other in &mut contestants[1..] {
        "other driver".clone_into(&mut other.name);
    }
    let figures = match name {
        "memory" => vec![memory::idle(&contestants, extent).await?],
        "ext4" => cycles::measure(&contestants, latency, extent, FsType::Ext4).await?,
        "xfs" => cycles::measure(&contestants, latency, extent, FsType::Xfs).await?,
        "restore" => restore::measure(&contestants[0], latency, extent).await?,
        "parallel" => parallel::measure(&contestants[0], extent).await?,
        _ => vec![memory::growth(&contestants[0], extent).await?],
    };
    let Some((latency, note)) = delayed else { return Ok(figures) };
    println!("{note}");
    Ok(figures.into_iter().map(|figure| of_latency(figure, latency, &note)).collect())
}

/// Names the latency in a figure of delayed disks, and adds a row with the driver's own share. The
/// targets are those of disks without latency.
fn of_latency(mut figure: Figure, latency: Latency, note: &str) -> Figure {
    figure.key.push_str(&format!("-{latency}"));
    figure.title.push_str(&format!(", {latency} for each request to the disk"));
    figure.targets.clear();
    let samples = |role| figure.first(role).map_or(&[][..], |row| &row.samples);
    let rounds = samples(Role::Ours).iter().zip(samples(Role::Bound));
    let own = rounds.map(|(driver, bare)| driver - bare).collect();
    figure.row(Role::Part, "the driver less the bare steps", own).note(note)
}
