//! NvmeStatistics: log page 0xD0 of the controller behind a volume's disk, as the disk gave it. It is parsed elsewhere.
use crate::device::Access;
use crate::outcome::{At, Done};
use crate::sys;
use crate::world::World;
use ebs_csi_wire::{LogPage, NvmeStatistics, Refusal, Step};
use rustix::io::Errno;

/// Carry the request out.
pub(super) fn statistics(world: &World, asked: &NvmeStatistics) -> Done<LogPage> {
    if !world.disks.have_controllers() {
        return Err(Refusal::Unsupported.into());
    }
    let device = world
        .find_known(&asked.volume, None, Access::ReadOnly)
        .at(Step::FindDevice)?;
    if device.by_name().is_some() {
        return Err(Refusal::Unsupported.into());
    }
    let page = sys::nvme_statistics_page(&device)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .at(Step::Stat)?;
    // The page is this volume's only if the disk still is.
    world.verify(&device)?;
    Ok(LogPage { page })
}
