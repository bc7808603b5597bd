//! NvmeStatistics: log page 0xD0 of the controller behind a volume's disk, as the disk gave it. It is parsed elsewhere.
use crate::device::Access;
use crate::outcome::{At, Done};
use crate::world::World;
use ebs_csi_wire::{LogPage, NvmeStatistics, Refusal, Step};

/// Carry the request out.
pub(super) fn statistics(world: &World, asked: &NvmeStatistics) -> Done<LogPage> {
    let device = world
        .find_known(&asked.volume, None, Access::ReadOnly)
        .at(Step::FindDevice)?;
    let page = world
        .disks
        .statistics_page(&device)
        .at(Step::LogPage)?
        .ok_or(Refusal::Unsupported)?;
    // The page is this volume's only if the disk still is.
    world.verify(&device)?;
    Ok(LogPage { page })
}
