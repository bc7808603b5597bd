//! A file system that was made elsewhere is looked at in full before anybody sees it mounted.
use super::prepare;
use crate::device::Device;
use crate::mounts::{self, Parameter};
use crate::outcome::{At, Done};
use crate::tools::{self, Check};
use crate::world::World;
use ebs_csi_policy::facts::Content;
use ebs_csi_policy::judge::{Authorized, StageDisk};
use ebs_csi_policy::tool::ToolId;
use ebs_csi_wire::{ContentState, FsType, Refusal, Refused, Seen, Stage, Step};
use rustix::fd::OwnedFd;
use rustix::mount::MountAttrFlags;

/// Passes of a checker after which a file system that still needs repairs is left to a person.
const PASSES: usize = 3;

/// Have it looked at, and repaired where that needs no person and the request may write: ext by
/// `full` checks. Answers the claim, which may be another one, and whether something was repaired.
pub(super) fn all_of_it(
    world: &World,
    asked: &Stage,
    device: &Device,
    permit: &Authorized<StageDisk>,
    content: &Content,
    claim: OwnedFd,
    full: Check,
) -> Done<(OwnedFd, bool)> {
    match asked.fs {
        FsType::Ext3 | FsType::Ext4 if asked.read_only => {
            if !tools::sound(world, permit, ToolId::E2fsckLook, &claim)? {
                return Err(errors(asked.fs).into());
            }
            Ok((claim, false))
        }
        FsType::Ext3 | FsType::Ext4 => {
            // What a repair leaves may need another one: it counts when a whole pass finds nothing.
            let mut repaired = false;
            // A full check that replays a journal itself corrects the counters in the superblock,
            // which a running kernel keeps in memory alone, and tells that as a repair.
            if prepare::to_replay(content) {
                repaired = tools::check(world, permit, asked.fs, &claim, Check::Usual)?;
            }
            for _ in 0..PASSES {
                if !tools::check(world, permit, asked.fs, &claim, full)? {
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
            Ok((xfs(world, asked, device, permit, tool, claim)?, false))
        }
    }
}

fn xfs(
    world: &World,
    asked: &Stage,
    device: &Device,
    permit: &Authorized<StageDisk>,
    tool: ToolId,
    claim: OwnedFd,
) -> Done<OwnedFd> {
    if sound_xfs(world, device, permit, tool)? {
        return Ok(claim);
    }
    if asked.read_only {
        // A log that was not replayed looks like damage, and replaying it writes.
        return Err(Refusal::UntrustedImage.into());
    }
    // Only the kernel replays a log: it mounts the file system where nobody can see it, and lets go of it again.
    drop(claim);
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let alone = [Parameter::Flag("nouuid".to_owned())];
    let mount = mounts::create(permit, asked.fs, device, &alone, attributes.bits().into())?;
    drop(mount);
    let claim = prepare::claim(world, device, asked)?;
    world.verify(device)?;
    if sound_xfs(world, device, permit, tool)? {
        Ok(claim)
    } else {
        Err(errors(asked.fs).into())
    }
}

/// The checker reads past the kernel's memory of the disk, which may be older than what a mount wrote.
fn sound_xfs(
    world: &World,
    device: &Device,
    permit: &Authorized<StageDisk>,
    tool: ToolId,
) -> Done<bool> {
    let disk = device.read_directly(&world.disks).at(Step::ReadDevice)?;
    tools::sound(world, permit, tool, &disk)
}

fn errors(fs: FsType) -> Refused {
    let damaged = Seen::Content {
        signature: fs.into(),
        state: ContentState::Damaged,
    };
    Refused::because(Refusal::FilesystemErrors, damaged)
}
