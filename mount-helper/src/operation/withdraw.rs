//! Unstage and unpublish: unmounts what belongs to the volume, removes the empty target, and leaves
//! everything else unchanged.
use super::{copied_mount, disk_use};
use crate::disk::device::{Access, DeviceError, XenDisk};
use crate::mount::directory_requests::Act;
use crate::mount::{detached_mount, privilege};
use crate::operation::OperationContext;
use crate::outcome::{At, Result, failed};
use crate::{fault_point, journal};
use ebs_csi_policy::facts::{DeviceNumber, Owner, PathFacts};
use ebs_csi_policy::judge::{self, Authorized, Withdraw};
use ebs_csi_wire::{Done, Refusal, Step, Unpublish, Unstage, VolumeId};
use rustix::io::Errno;
use std::num::NonZeroU32;
use std::time::Duration;

/// Largest number of steps at one place. Another driver may have stacked mounts there; each one is
/// judged before it is unmounted.
const MOST_STEPS: usize = 8;

/// Number of retries for a busy mount, 20 ms apart.
const BUSY_RETRIES: usize = 10;

/// Number of further claims of a disk that was unmounted here: containers that are starting have a
/// copy of every mount for a moment.
const CLAIM_RETRIES: usize = 3;

/// Unstages a volume. Afterwards nothing on the node holds the disk any more, or only a file system
/// in another mount namespace that is read-only now, which the reply says.
pub(super) fn unstage(context: &OperationContext, request: &Unstage) -> Result<Done> {
    let relative = context.relative(&request.staging)?;
    let (mut already, mut unproved, mut partition) = (true, None, None);
    for _ in 0..MOST_STEPS {
        let place = context.path_facts(relative)?;
        let owner = context.owner(&place, &request.volume)?;
        let permit = judge::unstage(&place, owner)?;
        match *permit.act() {
            Withdraw::Unmount { .. } => {
                // Pods still use it: nothing is changed.
                if let PathFacts::Mounted(mount) = &place {
                    if is_mounted_elsewhere(context, mount.device, relative)? {
                        let refused =
                            context.in_use_refusal(Refusal::StillHeld, mount.device, relative);
                        return Err(refused.into());
                    }
                    if owner == Owner::Unproved {
                        unproved = context.disks.xen_disk(mount.device);
                    }
                }
                already = false;
                partition = context.partition_at(&place);
                if let PathFacts::Mounted(mount) = &place
                    && let Some(sequence) = context.disks.sequence_of(mount.device)
                {
                    context.mounted_disks.add(sequence, mount.device);
                }
                write_back(context, relative, &place, owner, &request.volume)?;
                fault_point::reached("unstage-synced");
                unmount(context, &permit, relative)?;
                fault_point::reached("unstage-unmounted");
                continue;
            }
            Withdraw::RemoveDirectory => {
                remove_staging_directory(context, &request.volume, relative)?;
                fault_point::reached("unstage-removed");
            }
            Withdraw::RemoveFile => return Err(Refusal::TargetOccupied.into()),
            Withdraw::Already => context.root.remove_made_parents(relative, &context.directories),
        }
        let copied = check_released(context, &permit, request, unproved, partition)?;
        return Ok(Done { already, copied });
    }
    Err(Refusal::MountedDifferently.into())
}

pub(super) fn unpublish(context: &OperationContext, request: &Unpublish) -> Result<Done> {
    let relative = context.relative(&request.target)?;
    let mut already = true;
    for _ in 0..MOST_STEPS {
        let place = context.path_facts(relative)?;
        let owner = context.owner(&place, &request.volume)?;
        let permit = judge::unpublish(&place, owner)?;
        let act = match *permit.act() {
            Withdraw::Unmount { .. } => {
                already = false;
                note_raw_use(context, &request.volume, &place);
                unmount(context, &permit, relative)?;
                fault_point::reached("unpublish-unmounted");
                continue;
            }
            Withdraw::RemoveDirectory => Act::RemoveDirectory,
            Withdraw::RemoveFile => {
                check_empty(context, relative)?;
                // The disk is switched before the file is removed: after a kill at this point, the
                // file is still there, and a repeated request comes here again.
                disk_use::restore_writable(context, &request.volume)?;
                Act::RemoveFile
            }
            Withdraw::Already => {
                context.root.remove_made_parents(relative, &context.directories);
                return Ok(Done { already, copied: false });
            }
        };
        let removed = context.root.remove(act, relative, &context.directories)?;
        context.root.remove_made_parents(relative, &context.directories);
        return Ok(Done { already: already && !removed, copied: false });
    }
    Err(Refusal::MountedDifferently.into())
}

/// Removes the staging directory. When a directory is removed, the kernel unmounts what other mount
/// namespaces have mounted on it. A directory with entries stays: the mount covered them, and they
/// are not the volume's.
fn remove_staging_directory(
    context: &OperationContext,
    volume: &VolumeId,
    relative: &str,
) -> Result<()> {
    match context.root.remove(Act::RemoveDirectory, relative, &context.directories) {
        Ok(_) => context.root.remove_made_parents(relative, &context.directories),
        Err(stop) if stop == Refusal::TargetOccupied.into() => {
            let names = context.root.first_entries(relative).join(", ");
            let directory = context.root.absolute_path(relative).map(|path| path.to_string());
            let directory = ("directory", directory.as_deref().unwrap_or(relative));
            let meaning = "the mount covered them; the driver removes nothing that it did not make";
            let (volume, entries) = (("volume", volume.as_str()), ("entries", &*names));
            journal::warn("left-over", &[volume, directory, entries, ("meaning", meaning)]);
        }
        Err(stop) => return Err(stop),
    }
    Ok(())
}

/// Returns whether the file system is mounted at another place, too.
fn is_mounted_elsewhere(
    context: &OperationContext,
    device: DeviceNumber,
    relative: &str,
) -> Result<bool> {
    let mounts = context.mount_table.read_of(device).at(Step::ReadMountTable)?;
    Ok(mounts.iter().any(|mount| context.root.relative(mount).as_deref() != Some(relative)))
}

/// Refuses a file that is not empty: this helper did not make it as a target.
fn check_empty(context: &OperationContext, relative: &str) -> Result<()> {
    let held = context.root.hold(relative)?;
    if rustix::fs::fstat(&held).at(Step::Stat)?.st_size == 0 {
        Ok(())
    } else {
        Err(Refusal::TargetOccupied.into())
    }
}

/// Notes that a container had the disk itself, perhaps from an earlier helper.
fn note_raw_use(context: &OperationContext, volume: &VolumeId, place: &PathFacts) {
    let raw = matches!(place, PathFacts::Mounted(mount) if mount.block && !mount.read_only);
    if raw
        && let Ok(device) =
            context.find_known(volume, context.partition_at(place), Access::ReadOnly)
    {
        context.examined_disks.note_raw_use(&device);
    }
}

/// Ends a freeze of the file system, and writes it back while write errors can still be reported.
/// When the application made the root directory private and the host does not permit to open it,
/// the unmount writes back.
fn write_back(
    context: &OperationContext,
    relative: &str,
    place: &PathFacts,
    owner: Owner,
    volume: &VolumeId,
) -> Result<()> {
    let root = match privilege::open_volume_root(context.root.held(), relative) {
        Ok(root) => root,
        Err(Errno::ACCESS | Errno::IO) => return Ok(()),
        Err(errno) => return Err(failed(Step::Sync, errno)),
    };
    copied_mount::thaw(volume, &root);
    match rustix::fs::syncfs(&root) {
        Ok(()) => Ok(()),
        // A file system that the kernel has stopped, or that has lost its disk, accepts no more
        // writes, however often it is tried. The next stage checks it. The kernel may not have
        // noticed that the disk is gone while there was nothing to write.
        Err(errno @ (Errno::ROFS | Errno::IO | Errno::NODEV | Errno::NXIO))
            if owner == Owner::Gone || is_stopped(context, place)? =>
        {
            journal::warn("not-written-back", &[("why", &errno.to_string())]);
            Ok(())
        }
        Err(errno) => Err(failed(Step::Sync, errno)),
    }
}

/// Returns whether the kernel accepts no more writes to the file system that is mounted there.
fn is_stopped(context: &OperationContext, place: &PathFacts) -> Result<bool> {
    let PathFacts::Mounted(mount) = place else {
        return Ok(false);
    };
    let mounts = context.mount_table.read_of(mount.device).at(Step::ReadMountTable)?;
    Ok(mounts.iter().any(|mount| mount.turned_read_only || mount.shut_down))
}

fn unmount(
    context: &OperationContext,
    permit: &Authorized<Withdraw>,
    relative: &str,
) -> Result<()> {
    let (parent, name) = context.root.hold_parent(relative)?;
    let mut tries = 0;
    loop {
        match detached_mount::unmount_at(permit, &parent, name) {
            Ok(()) => return Ok(()),
            // A process that walks over a mount, to list or to measure it, holds the mount for a
            // moment.
            Err(Errno::BUSY) if tries < BUSY_RETRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::BUSY) => return Err(Refusal::StillHeld.into()),
            Err(errno) => return Err(failed(Step::Unmount, errno)),
        }
    }
}

/// Checks that nobody holds the disk: no mount in this namespace, of a file system or of the device
/// node, and the exclusive claim succeeds, which any mount in another namespace and any opener with
/// a claim would prevent. Otherwise the holder must be a file system in another namespace that
/// accepts no more writes; then the result is true. Nobody holds a disk that has left the node.
/// `unproved` is the disk that was mounted there when nothing else identifies it.
fn check_released(
    context: &OperationContext,
    permit: &Authorized<Withdraw>,
    request: &Unstage,
    unproved: Option<XenDisk>,
    partition: Option<NonZeroU32>,
) -> Result<bool> {
    let (volume, relative) = (&request.volume, context.relative(&request.staging)?);
    let found = match (context.find_known(volume, None, Access::ReadOnly), unproved) {
        (Err(DeviceError::Absent), Some(disk)) => {
            context.disks.open_known(disk, None, Access::ReadOnly)
        }
        (found, _) => found,
    };
    let device = match found {
        Ok(device) => device,
        Err(DeviceError::Absent) => return Ok(false),
        other => other.at(Step::FindDevice)?,
    };
    let mounts = context.mount_table.read().at(Step::ReadMountTable)?;
    if mounts.iter().any(|mount| mount.device == device.number()) {
        let refused = context.in_use_refusal(Refusal::StillHeld, device.number(), relative);
        return Err(refused.into());
    }
    // A pod that has the disk itself may not have claimed it.
    if let Some(raw) = disk_use::publications_in(context, &device, &mounts).first() {
        return Err(disk_use::held_at(context, raw).into());
    }
    let (mut tries, mut thawed) = (0, false);
    loop {
        match device.claim(&context.disks, Access::ReadOnly) {
            Ok(_) => return Ok(false),
            // A mount namespace that was copied a moment ago, or a program that only reads disks,
            // holds the disk for a moment.
            Err(DeviceError::Os(Errno::BUSY)) if tries < CLAIM_RETRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(DeviceError::Os(Errno::BUSY)) => {
                let part = match (partition, unproved) {
                    (None, _) => None,
                    (Some(_), Some(disk)) => {
                        Some(context.disks.open_known(disk, partition, Access::ReadOnly))
                    }
                    (Some(_), None) => {
                        Some(context.find_known(volume, partition, Access::ReadOnly))
                    }
                };
                let part = part.transpose().at(Step::FindDevice)?;
                let mounted = part.as_ref().unwrap_or(&device);
                if copied_mount::release(context, permit, volume, mounted)? {
                    context.released_beside_copy.insert(device.attachment(), ());
                    return Ok(true);
                }
                // Somebody who freezes the file system again holds the disk.
                if std::mem::replace(&mut thawed, true) {
                    return Err(Refusal::StillHeld.into());
                }
            }
            Err(DeviceError::Os(Errno::NXIO | Errno::NODEV | Errno::NOENT)) => return Ok(false),
            Err(e) => return Err(e).at(Step::ClaimDevice),
        }
    }
}
