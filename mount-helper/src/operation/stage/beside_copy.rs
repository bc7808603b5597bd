//! A stage of a volume whose file system stays alive in another mount namespace, through a copy of
//! an earlier mount (see [`crate::operation::copied_mount`]).
use super::{FoundDisk, read_content};
use crate::journal;
use crate::mount::detached_mount::{self, JoinedMount};
use crate::operation::{CopiedMounts, OperationContext, copied_mount};
use crate::outcome::{At, Result, Stop};
use ebs_csi_policy::judge::{Authorized, Preparation, StageDisk};
use ebs_csi_wire::{Refusal, Refused, Step};

/// Returns whether the stop says that the disk is held, and the holder may be a copy of an earlier
/// mount.
pub(super) fn may_be_held_by_copy(context: &OperationContext, stop: &Stop) -> bool {
    let held = Refused::from(Refusal::StillHeld);
    context.copied_mounts == CopiedMounts::Release
        && matches!(stop, Stop::Refused(refused) if *refused == held)
}

/// Makes a mount for a stage while a copy exists. Nobody can claim the disk, so no tool can run:
/// the file system must be fit to be mounted unchanged, as it is after
/// [`crate::operation::copied_mount::release`].
pub(super) fn join_copy(
    found: &FoundDisk<'_>,
    stop: Stop,
) -> Result<(Authorized<StageDisk>, JoinedMount)> {
    let (context, request, device) = (found.context, &found.request, found.device());
    let volume = &request.disk.volume;
    let ours = context.mounted_disks.is_own_mount(&context.disks, device, volume);
    if !ours.at(Step::ReadDevice)? {
        return Err(stop);
    }
    let disk = device.read_directly(&context.disks).at(Step::ReadDevice)?;
    let content = read_content(context, &disk)?;
    drop(disk);
    let permit = found.judge(&content, found.remembered_evidence())?;
    if permit.act().preparation != Preparation::Nothing {
        return Err(stop);
    }
    let joined = detached_mount::join_for_stage(&permit, request.fs, device, true)
        .or_else(|_| detached_mount::join_for_stage(&permit, request.fs, device, false))
        .map_err(|_| stop)?;
    found.disk.verify()?;
    // A frozen file system cannot change between read-only and writable.
    if let Ok(root) = joined.root() {
        copied_mount::thaw(volume, root);
    }
    if !request.read_only {
        joined.make_writable().at(Step::CreateMount)?;
    }
    let meaning = "files that are open in another mount namespace keep the file system of an \
                   earlier mount, whose options hold for this one, too";
    journal::warn("staged-beside-copy", &[("volume", volume.as_str()), ("meaning", meaning)]);
    Ok((permit, joined))
}
