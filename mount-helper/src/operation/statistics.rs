//! Stats and NvmeStatistics.
use crate::disk::device::Access;
use crate::operation::OperationContext;
use crate::outcome::{At, Result};
use ebs_csi_policy::facts::PathFacts;
use ebs_csi_policy::judge::{self, Shown};
use ebs_csi_wire::{LogPage, NvmeStatistics, Refusal, Stats, Step, Usage};
use rustix::fs::{fstat, fstatfs};

/// Returns space and inodes in use. Does not keep the volume open and does not wait for other
/// operations on it.
pub(super) fn stats(context: &OperationContext, request: &Stats) -> Result<Usage> {
    let relative = context.relative(&request.path)?;
    let place = context.path_facts(relative)?;
    let owner = context.owner(&place, &request.volume)?;
    match judge::shown(&place, owner)?.into_act() {
        Shown::Block => {
            let device = context
                .find_known(&request.volume, context.partition_at(&place), Access::ReadOnly)
                .at(Step::FindDevice)?;
            Ok(Usage { block: true, total_bytes: device.bytes(), ..Usage::default() })
        }
        Shown::Filesystem { .. } => {
            let held = context.root.hold(relative)?;
            // An XFS that is shut down still reports its usage, but fstat of its root fails.
            fstat(&held).at(Step::Stat)?;
            let found = fstatfs(&held).at(Step::Stat)?;
            let block = u64::try_from(found.f_frsize).unwrap_or(0);
            let health = health(context, &place)?;
            let used_blocks = found.f_blocks.saturating_sub(found.f_bfree);
            Ok(Usage {
                block: false,
                total_bytes: found.f_blocks.saturating_mul(block),
                used_bytes: used_blocks.saturating_mul(block),
                available_bytes: found.f_bavail.saturating_mul(block),
                total_inodes: found.f_files,
                used_inodes: found.f_files.saturating_sub(found.f_ffree),
                available_inodes: found.f_ffree,
                ..health
            })
        }
    }
}

/// Returns what the kernel reports about the mounted file system: whether it has stopped, and how
/// many errors it counts.
fn health(context: &OperationContext, place: &PathFacts) -> Result<Usage> {
    let PathFacts::Mounted(mount) = place else {
        return Ok(Usage::default());
    };
    let mounts = context.mount_table.read_of(mount.device).at(Step::ReadMountTable)?;
    let name = mounts.first().map_or("", |mount| mount.source.as_str());
    Ok(Usage {
        turned_read_only: mounts.iter().any(|mount| mount.turned_read_only),
        shut_down: mounts.iter().any(|mount| mount.shut_down),
        errors: context.disks.ext_errors(name.trim_start_matches("/dev/")),
        ..Usage::default()
    })
}

/// Reads log page 0xD0 of the controller behind a volume's disk, and returns it without parsing.
pub(super) fn nvme(context: &OperationContext, request: &NvmeStatistics) -> Result<LogPage> {
    let device =
        context.find_known(&request.volume, None, Access::ReadOnly).at(Step::FindDevice)?;
    let page =
        context.disks.statistics_page(&device).at(Step::LogPage)?.ok_or(Refusal::Unsupported)?;
    // The page belongs to this volume only if the disk is still the same.
    context.verify(&device)?;
    Ok(LogPage { page })
}
