//! NvmeStatistics: reads log page 0xD0 of the controller behind a volume's disk, and returns it
//! without parsing.
use crate::device::Access;
use crate::outcome::{At, Done};
use crate::world::World;
use ebs_csi_wire::{LogPage, NvmeStatistics, Refusal, Step};

/// Carries out the request.
pub(super) fn statistics(world: &World, asked: &NvmeStatistics) -> Done<LogPage> {
    let device = world
        .find_known(&asked.volume, None, Access::ReadOnly)
        .at(Step::FindDevice)?;
    let page = world
        .disks
        .statistics_page(&device)
        .at(Step::LogPage)?
        .ok_or(Refusal::Unsupported)?;
    // The page belongs to this volume only if the disk is still the same.
    world.verify(&device)?;
    Ok(LogPage { page })
}
