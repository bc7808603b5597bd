//! NvmeStatistics: reads log page 0xD0 of the controller behind a volume's disk, and returns it
//! without parsing.
use crate::disk::device::Access;
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done};
use ebs_csi_wire::{LogPage, NvmeStatistics, Refusal, Step};

/// Carries out the request.
pub(super) fn statistics(context: &OperationContext, request: &NvmeStatistics) -> Done<LogPage> {
    let device =
        context.find_known(&request.volume, None, Access::ReadOnly).at(Step::FindDevice)?;
    let page =
        context.disks.statistics_page(&device).at(Step::LogPage)?.ok_or(Refusal::Unsupported)?;
    // The page belongs to this volume only if the disk is still the same.
    context.verify(&device)?;
    Ok(LogPage { page })
}
