//! Unstage and unpublish: unmount what is the volume's, remove the empty target, leave everything else alone.
use super::{copied, raw};
use crate::device::{Access, DeviceError, XenDisk};
use crate::directories::Act;
use crate::fault_point;
use crate::journal;
use crate::mounts;
use crate::outcome::{At, Done, failed};
use crate::volume_root;
use crate::world::World;
use ebs_csi_policy::facts::{Owner, PathFacts};
use ebs_csi_policy::judge::{self, Authorized, Withdraw};
use ebs_csi_wire::{self as wire, Refusal, Step, Unpublish, Unstage, VolumeId};
use rustix::io::Errno;
use std::num::NonZeroU32;
use std::time::Duration;

/// Mounts may lie on one another where another driver stacked them; each is looked at before it goes.
const DEEPEST_STACK: usize = 8;

/// Times that a busy mount, or a busy disk, is tried again, 20 ms apart.
const PASSERS_BY: usize = 10;

/// Further looks at a disk that was unmounted here, half a second each: containers that start have
/// a copy of every mount for a moment.
const COPIES: usize = 3;

/// Take a staged volume away. When this answers, nothing on the node holds the disk any more.
pub(super) fn unstage(world: &World, asked: &Unstage) -> Done<wire::Done> {
    let relative = world.relative(&asked.staging)?;
    let (mut already, mut unproved, mut partition) = (true, None, None);
    for _ in 0..DEEPEST_STACK {
        let place = world.look(relative)?;
        let owner = world.owner(&place, &asked.volume)?;
        let permit = judge::unstage(&place, owner)?;
        match *permit.act() {
            Withdraw::Unmount { .. } => {
                // Pods still use it: nothing is changed.
                if let PathFacts::Mounted(mount) = &place {
                    if shown_elsewhere(world, mount.device, relative)? {
                        let refused = world.in_use(Refusal::StillHeld, mount.device, relative);
                        return Err(refused.into());
                    }
                    if owner == Owner::Unproved {
                        unproved = world.disks.xen_disk(mount.device);
                    }
                }
                already = false;
                partition = world.partition_at(&place);
                if let PathFacts::Mounted(mount) = &place
                    && let Some(sequence) = world.disks.sequence_of(mount.device)
                {
                    world.mounted.add(sequence, mount.device);
                }
                write_back(world, relative, &place, owner)?;
                fault_point::reached("unstage-synced");
                unmount(world, &permit, relative)?;
                fault_point::reached("unstage-unmounted");
            }
            Withdraw::RemoveDirectory => {
                // The kernel takes away what other mount namespaces have mounted on a directory
                // that is removed.
                world
                    .root
                    .remove(Act::RemoveDirectory, relative, &world.directories)?;
                world.root.remove_made_parents(relative, &world.directories);
                fault_point::reached("unstage-removed");
                let copied = released(world, &permit, asked, unproved, partition)?;
                return Ok(wire::Done { already, copied });
            }
            Withdraw::RemoveFile => return Err(Refusal::TargetOccupied.into()),
            Withdraw::Already => {
                world.root.remove_made_parents(relative, &world.directories);
                let copied = released(world, &permit, asked, unproved, partition)?;
                return Ok(wire::Done { already, copied });
            }
        }
    }
    Err(Refusal::MountedDifferently.into())
}

/// Take a published volume away.
pub(super) fn unpublish(world: &World, asked: &Unpublish) -> Done<wire::Done> {
    let relative = world.relative(&asked.target)?;
    let mut already = true;
    for _ in 0..DEEPEST_STACK {
        let place = world.look(relative)?;
        let owner = world.owner(&place, &asked.volume)?;
        let permit = judge::unpublish(&place, owner)?;
        let act = match *permit.act() {
            Withdraw::Unmount { .. } => {
                already = false;
                note_raw(world, &asked.volume, &place);
                unmount(world, &permit, relative)?;
                fault_point::reached("unpublish-unmounted");
                continue;
            }
            Withdraw::RemoveDirectory => Act::RemoveDirectory,
            Withdraw::RemoveFile => {
                empty(world, relative)?;
                // Before the file goes: who is killed here finds it, and comes by again.
                raw::released(world, &asked.volume)?;
                Act::RemoveFile
            }
            Withdraw::Already => {
                world.root.remove_made_parents(relative, &world.directories);
                return Ok(wire::Done {
                    already,
                    copied: false,
                });
            }
        };
        let removed = world.root.remove(act, relative, &world.directories)?;
        world.root.remove_made_parents(relative, &world.directories);
        return Ok(wire::Done {
            already: already && !removed,
            copied: false,
        });
    }
    Err(Refusal::MountedDifferently.into())
}

/// The file system is mounted at another place, too.
fn shown_elsewhere(world: &World, device: u64, relative: &str) -> Done<bool> {
    let mounts = world.root.mounts_of(device, &world.table)?;
    Ok(mounts
        .iter()
        .any(|mount| mount.path.as_deref() != Some(relative)))
}

/// A file that holds something is not a target that this helper made.
fn empty(world: &World, relative: &str) -> Done<()> {
    let held = world.root.hold(relative)?;
    if rustix::fs::fstat(&held).at(Step::Stat)?.st_size == 0 {
        Ok(())
    } else {
        Err(Refusal::TargetOccupied.into())
    }
}

/// A container had the disk itself, perhaps from a helper before this one.
fn note_raw(world: &World, volume: &VolumeId, place: &PathFacts) {
    let raw = matches!(place, PathFacts::Mounted(mount) if mount.block && !mount.read_only);
    if raw && let Ok(device) = world.find_known(volume, world.partition_at(place), Access::ReadOnly)
    {
        world.examined.used_raw(&device);
    }
}

/// Write the file system back while its errors can still be told. Where the host does not let a
/// root be opened that the application closed to others, the unmount then writes back.
fn write_back(world: &World, relative: &str, place: &PathFacts, owner: Owner) -> Done<()> {
    match volume_root::open(world.root.held(), relative) {
        Ok(root) => match rustix::fs::syncfs(&root) {
            Ok(()) => Ok(()),
            // What the kernel has stopped, and what has no disk any more, takes nothing more, however often it is asked. The next
            // stage checks it. A kernel need not have noticed that the disk is gone while nothing was to be written.
            Err(errno @ (Errno::ROFS | Errno::IO | Errno::NODEV | Errno::NXIO))
                if owner == Owner::Gone || stopped(world, place)? =>
            {
                journal::warn("not-written-back", &[("why", &errno.to_string())]);
                Ok(())
            }
            Err(errno) => Err(failed(Step::Sync, errno)),
        },
        Err(Errno::ACCESS | Errno::IO) => Ok(()),
        Err(errno) => Err(failed(Step::Sync, errno)),
    }
}

/// The kernel takes no more writes to the file system that is mounted there.
fn stopped(world: &World, place: &PathFacts) -> Done<bool> {
    let PathFacts::Mounted(mount) = place else {
        return Ok(false);
    };
    let mounts = world.root.all_of(mount.device, &world.table)?;
    Ok(mounts
        .iter()
        .any(|mount| mount.turned_read_only || mount.shut_down))
}

fn unmount(world: &World, permit: &Authorized<Withdraw>, relative: &str) -> Done<()> {
    let (parent, name) = world.root.hold_parent(relative)?;
    let mut tries = 0;
    loop {
        match mounts::detach(permit, &parent, name) {
            Ok(()) => return Ok(()),
            // Whoever walks over a mount, to look or to count, holds it for that moment.
            Err(Errno::BUSY) if tries < PASSERS_BY => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::BUSY) => return Err(Refusal::StillHeld.into()),
            Err(errno) => return Err(failed(Step::Unmount, errno)),
        }
    }
}

/// Nobody holds the disk: no mount in this namespace, of a file system or of the disk itself, and
/// the exclusive claim succeeds, which no mount in any other namespace and no opener that claimed
/// it would allow; or else what holds it is a file system in another namespace that takes no more
/// writes, which the answer tells. A disk that has left the node is held by nobody. `unproved` is
/// what was mounted there, where nothing else tells.
fn released(
    world: &World,
    permit: &Authorized<Withdraw>,
    asked: &Unstage,
    unproved: Option<XenDisk>,
    partition: Option<NonZeroU32>,
) -> Done<bool> {
    let (volume, relative) = (&asked.volume, world.relative(&asked.staging)?);
    let found = match (world.find_known(volume, None, Access::ReadOnly), unproved) {
        (Err(DeviceError::Absent), Some(disk)) => {
            world.disks.open_known(disk, None, Access::ReadOnly)
        }
        (found, _) => found,
    };
    let device = match found {
        Ok(device) => device,
        Err(DeviceError::Absent) => return Ok(false),
        other => other.at(Step::FindDevice)?,
    };
    let mounts = world.table.read().at(Step::ReadMountTable)?;
    if mounts.iter().any(|mount| mount.device == device.number()) {
        let refused = world.in_use(Refusal::StillHeld, device.number(), relative);
        return Err(refused.into());
    }
    // A pod that has the disk itself need not have claimed it.
    if let Some(raw) = raw::publications_among(world, &device, &mounts).first() {
        return Err(raw::held_at(world, raw).into());
    }
    let mut tries = 0;
    loop {
        match device.claim(&world.disks, Access::ReadOnly) {
            Ok(_) => return Ok(false),
            // A mount namespace that was copied a moment ago, or a program that looks at disks, holds it for that moment.
            Err(DeviceError::Os(Errno::BUSY)) if tries < COPIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(DeviceError::Os(Errno::BUSY)) => {
                let mounted = match (partition, unproved) {
                    (None, _) => Ok(device),
                    (Some(_), Some(disk)) => {
                        world.disks.open_known(disk, partition, Access::ReadOnly)
                    }
                    (Some(_), None) => world.find_known(volume, partition, Access::ReadOnly),
                };
                copied::release(world, permit, volume, &mounted.at(Step::FindDevice)?)?;
                return Ok(true);
            }
            Err(DeviceError::Os(Errno::NXIO | Errno::NODEV | Errno::NOENT)) => return Ok(false),
            Err(e) => return Err(e).at(Step::ClaimDevice),
        }
    }
}
