//! Full examination of a file system that was made elsewhere, before anybody can see it mounted.
use super::claimed_disk;
use super::filesystem_tools::{self, Check};
use crate::disk::device::{Claim, Device};
use crate::mount::detached_mount::{self, Parameter};
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done};
use ebs_csi_policy::facts::Content;
use ebs_csi_policy::judge::{Authorized, StageDisk};
use ebs_csi_policy::tool::ToolId;
use ebs_csi_wire::{ContentState, FsType, Observation, Refusal, Refused, Stage, Step};
use rustix::mount::MountAttrFlags;

/// Number of check passes. A file system that still needs repairs after them is left to a person.
const PASSES: usize = 3;

/// Has the file system examined, and repaired where that needs no person and the request may write.
/// For ext, the check is `full`. Returns the claim, which may be a new one, and whether something
/// was repaired.
pub(super) fn all_of_it(
    context: &OperationContext,
    asked: &Stage,
    device: &Device,
    permit: &Authorized<StageDisk>,
    content: &Content,
    claim: Claim,
    full: Check,
) -> Done<(Claim, bool)> {
    match asked.fs {
        FsType::Ext3 | FsType::Ext4 if asked.read_only => {
            if !filesystem_tools::sound(context, permit, ToolId::E2fsckLook, &claim)? {
                return Err(errors(asked.fs).into());
            }
            Ok((claim, false))
        }
        FsType::Ext3 | FsType::Ext4 => {
            // A repair may make another one necessary, so only a pass that finds nothing ends the
            // check.
            let mut repaired = false;
            // A full check that replays a journal itself also corrects the counters in the
            // superblock, which a running kernel keeps only in memory, and reports this as a
            // repair.
            if to_replay(content) {
                repaired =
                    filesystem_tools::check(context, permit, asked.fs, &claim, Check::Usual)?;
            }
            for _ in 0..PASSES {
                if !filesystem_tools::check(context, permit, asked.fs, &claim, full)? {
                    return Ok((claim, repaired));
                }
                repaired = true;
            }
            Err(errors(asked.fs).into())
        }
        FsType::Xfs => {
            let tool = match content {
                Content::Xfs(facts) => ToolId::looks_at_xfs(facts.groups),
                _ => ToolId::XfsRepairMany,
            };
            Ok((xfs(context, asked, device, permit, tool, claim)?, false))
        }
    }
}

fn xfs(
    context: &OperationContext,
    asked: &Stage,
    device: &Device,
    permit: &Authorized<StageDisk>,
    tool: ToolId,
    claim: Claim,
) -> Done<Claim> {
    if sound_xfs(context, device, permit, tool)? {
        return Ok(claim);
    }
    if asked.read_only {
        // A log that was not replayed looks like damage, and replaying it would write.
        return Err(Refusal::UntrustedImage.into());
    }
    // Only the kernel replays a log: mount the file system detached, where nobody can see it, and
    // drop the mount again.
    drop(claim);
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let alone = [Parameter::Flag("nouuid".to_owned())];
    let mount = detached_mount::create(permit, asked.fs, device, &alone, attributes.bits().into())?;
    drop(mount);
    let claim = claimed_disk::claim(context, device, asked)?;
    context.verify(device)?;
    if sound_xfs(context, device, permit, tool)? {
        Ok(claim)
    } else {
        Err(errors(asked.fs).into())
    }
}

/// Runs the checker with direct reads, because the page cache of the disk may be older than what a
/// mount wrote.
fn sound_xfs(
    context: &OperationContext,
    device: &Device,
    permit: &Authorized<StageDisk>,
    tool: ToolId,
) -> Done<bool> {
    let disk = device.read_directly(&context.disks).at(Step::ReadDevice)?;
    filesystem_tools::sound(context, permit, tool, &disk)
}

fn errors(fs: FsType) -> Refused {
    let damaged = Observation::Content {
        signature: fs.into(),
        state: ContentState::Damaged,
    };
    Refused::because(Refusal::FilesystemErrors, damaged)
}

/// Returns whether an ext journal has to be replayed.
pub(super) fn to_replay(content: &Content) -> bool {
    matches!(content, Content::Ext(facts) if facts.needs_recovery)
}
