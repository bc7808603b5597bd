//! A file system that stays alive in another mount namespace after its mounts here are gone. A
//! container that mounts `/` of the node without mount propagation has a copy of every mount that
//! existed when the container started. The copies disappear with the directory on which they stand,
//! but an open file or a working directory on a copy keeps the file system alive.
//!
//! The kernel has one superblock for all mounts of a disk. A further mount of the disk joins this
//! superblock, and through the new mount the file system is made read-only for all mounts: nothing
//! is left to be written, and nothing can be written later.
use crate::disk::device::Device;
use crate::mount::detached_mount::{self, JoinedMount};
use crate::operation::OperationContext;
use crate::outcome::{At, Result, Stop};
use crate::{journal, sys};
use ebs_csi_policy::judge::{Authorized, Withdraw};
use ebs_csi_policy::named_values;
use ebs_csi_wire::{FsType, Observation, Refusal, Refused, Step, VolumeId};
use rustix::fd::AsFd;
use rustix::io::Errno;

named_values! {
    /// What to do about a file system that another mount namespace keeps alive.
    pub(crate) CopiedMounts {
        /// Release the volume once the file system is read-only for all mounts.
        Release => "release",
        /// Hold the volume until nothing keeps the file system alive.
        Refuse => "refuse",
    }
}

/// Makes the file system read-only for all its mounts. Refuses when somebody writes to it, when the
/// settings ask for a refusal, and when no file system holds the disk. Returns false when the file
/// system was frozen: it is thawed now, and the freeze may have been all that held the disk.
pub(super) fn release(
    context: &OperationContext,
    permit: &Authorized<Withdraw>,
    volume: &VolumeId,
    device: &Device,
) -> Result<bool> {
    // A mount that somebody else made is no copy, and stays unchanged.
    let ours = context.mounted_disks.is_own_mount(&context.disks, device, volume);
    if !ours.at(Step::ReadDevice)? {
        return Err(Refusal::StillHeld.into());
    }
    let Some(joined) = join_live_filesystem(permit, device) else {
        return Err(Refusal::StillHeld.into());
    };
    if joined.root().is_ok_and(|root| thaw(volume, root)) {
        return Ok(false);
    }
    if context.copied_mounts == CopiedMounts::Refuse {
        return Err(held_by_copy());
    }
    match joined.make_read_only() {
        Ok(()) => {}
        // Files on the copy are open for writing.
        Err(Errno::BUSY) => return Err(held_by_copy()),
        Err(errno) => return Err(errno).at(Step::Sync),
    }
    device.flush().at(Step::Sync)?;
    let meaning = "files that are open in another mount namespace keep the file system; \
                   it is written back and read-only now";
    journal::warn("released-beside-copy", &[("disk", device.disk()), ("meaning", meaning)]);
    Ok(true)
}

/// Joins the live file system of the disk, of whichever type. For a type other than the mounted one
/// the kernel reports the disk as busy.
fn join_live_filesystem(permit: &Authorized<Withdraw>, device: &Device) -> Option<JoinedMount> {
    // Read-only first: such a mount writes nothing to a disk whose other mount has just gone.
    [true, false].into_iter().find_map(|read_only| {
        FsType::ALL.iter().find_map(|fs| detached_mount::join(permit, *fs, device, read_only).ok())
    })
}

fn held_by_copy() -> Stop {
    Refused::because(Refusal::StillHeld, Observation::Copied).into()
}

/// Ends a freeze (fsfreeze(8)) of the file system with this root directory, as backup hooks leave
/// one. It outlasts the last unmount, and keeps the file system alive and the disk claimed. Returns
/// whether there was one.
pub(super) fn thaw(volume: &VolumeId, root: impl AsFd) -> bool {
    let of_volume = ("volume", volume.as_str());
    match sys::thaw(root) {
        Ok(true) => {
            let meaning = "somebody froze the file system and did not thaw it";
            journal::warn("thawed", &[of_volume, ("meaning", meaning)]);
            true
        }
        Ok(false) => false,
        // What the freeze prevents fails by itself.
        Err(why) => {
            journal::warn("not-thawed", &[of_volume, ("why", &why.to_string())]);
            false
        }
    }
}
