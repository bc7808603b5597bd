//! What is done to a file system in use or of another maker before anybody can see it mounted: the
//! kernel's replay, and a full examination.
use super::Examined;
use super::filesystem_tools::{self, Check};
use crate::mount::detached_mount;
use crate::outcome::{Result, damaged};
use ebs_csi_policy::facts::Content;
use ebs_csi_policy::flag::MountPlan;
use ebs_csi_policy::tool::ToolId;
use ebs_csi_wire::{FsType, Refusal};
use rustix::mount::MountAttrFlags;

/// Number of check passes. A file system that still needs repairs after them is left to a person.
const PASSES: usize = 3;

/// Has the file system examined, and repaired where that needs no person and the request may write.
/// For ext, the check is `full`. Returns the disk, with a new claim perhaps, and whether something
/// was repaired.
pub(super) fn examine_in_full(mut disk: Examined<'_>, full: Check) -> Result<(Examined<'_>, bool)> {
    let request = &disk.found.request;
    match request.fs {
        // A disk that has to be written to anyway, for a replay, is checked as for any request.
        FsType::Ext3 | FsType::Ext4 if request.read_only && !needs_replay(&disk.content) => {
            if !filesystem_tools::is_sound_ext(disk.found, &disk.permit)? {
                return Err(damaged(request.fs));
            }
            Ok((disk, false))
        }
        FsType::Ext3 | FsType::Ext4 => {
            // A repair may make another one necessary, so only a pass that finds nothing ends the
            // check.
            let mut repaired = false;
            // A full check that replays a journal itself also corrects the counters in the
            // superblock, which a running kernel keeps only in memory, and reports this as a
            // repair.
            if has_fast_commits(&disk.content) {
                disk = replay_by_kernel(disk)?;
            } else if needs_replay(&disk.content) {
                repaired = filesystem_tools::check(&disk, Check::Usual)?;
            }
            for _ in 0..PASSES {
                if !filesystem_tools::check(&disk, full)? {
                    return Ok((disk, repaired));
                }
                repaired = true;
            }
            Err(damaged(request.fs))
        }
        FsType::Xfs => Ok((xfs(disk)?, false)),
    }
}

/// Has the kernel replay a journal or log: mounts the file system detached, where nobody can see
/// it, and drops the mount again.
pub(super) fn replay_by_kernel(mut disk: Examined<'_>) -> Result<Examined<'_>> {
    let (found, fs) = (disk.found, disk.found.request.fs);
    drop(disk.claim);
    let plan = MountPlan::default();
    let parameters = detached_mount::parameters(&plan, fs, disk.permit.act().continues);
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let attributes = attributes.bits().into();
    drop(detached_mount::create(&disk.permit, fs, found.found_disk(), &parameters, attributes)?);
    disk.claim = found.claim()?;
    found.disk.verify()?;
    Ok(disk)
}

fn xfs(mut disk: Examined<'_>) -> Result<Examined<'_>> {
    let (found, fs) = (disk.found, disk.found.request.fs);
    let tool = match &disk.content {
        Content::Xfs(facts) => ToolId::checks_xfs(facts.groups),
        _ => ToolId::XfsRepairMany,
    };
    if filesystem_tools::is_sound_xfs(found, &disk.permit, tool)? {
        return Ok(disk);
    }
    // A log that was not replayed looks like damage.
    if disk.permit.act().no_replay {
        return Err(Refusal::UntrustedImage.into());
    }
    if !filesystem_tools::has_unreplayed_log(found, &disk.permit)? {
        return Err(damaged(fs));
    }
    if found.device().facts().read_only {
        return Err(Refusal::DeviceReadOnly.into());
    }
    disk = replay_by_kernel(disk)?;
    if filesystem_tools::is_sound_xfs(found, &disk.permit, tool)? {
        Ok(disk)
    } else {
        Err(damaged(fs))
    }
}

/// Returns whether an ext journal that may have fast commits has to be replayed. `e2fsck` of
/// e2fsprogs 1.47 loses such commits, or damages the superblock.
pub(super) fn has_fast_commits(content: &Content) -> bool {
    matches!(content, Content::Ext(facts) if facts.fast_commit && facts.needs_recovery)
}

pub(super) fn needs_replay(content: &Content) -> bool {
    matches!(content, Content::Ext(facts) if facts.needs_recovery)
}
