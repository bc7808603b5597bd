//! A disk that is published raw: where, and whether the kernel takes writes to it.
//!
//! A read-only bind of a device node stops no write: the node is only a name of the disk. The disk itself is switched (`BLKROSET`),
//! which holds for everybody on the node, so that all raw publications of a disk are of one kind.
use crate::device::{Access, Device, DeviceError};
use crate::mount_table::Mount;
use crate::outcome::{At, Done};
use crate::sys;
use crate::world::World;
use ebs_csi_policy::facts::VolumeMount;
use ebs_csi_wire::{Refusal, Refused, Seen, Step, VolumeId};

/// Every place beneath the kubelet root where the node of the disk is bound, or of what shares bytes with it: a partition, or the
/// disk that this is a partition of.
pub(super) fn publications(world: &World, device: &Device) -> Done<Vec<VolumeMount>> {
    let mounts = world.table.read().at(Step::ReadMountTable)?;
    Ok(publications_among(world, device, &mounts))
}

/// The same in a table that was read already.
pub(super) fn publications_among(
    world: &World,
    device: &Device,
    mounts: &[Mount],
) -> Vec<VolumeMount> {
    mounts
        .iter()
        .filter_map(|mount| {
            // The table names the node within the file system that holds it.
            let name = mount.root_name();
            if !name.starts_with(device.disk()) {
                return None;
            }
            let relative = world.root.relative(mount)?;
            let node = world.root.bound_node(&relative)?;
            device
                .overlaps(&world.disks, name, node)
                .then_some(VolumeMount {
                    path: Some(relative),
                    read_only: mount.read_only,
                })
        })
        .collect()
}

/// The mount is of a file system that has bytes in common with the device.
pub(super) fn is_over(world: &World, device: &Device, mount: &Mount) -> bool {
    let name = mount.source.rsplit('/').next().unwrap_or_default();
    device.overlaps(&world.disks, name, mount.device)
}

/// Have the kernel refuse or take writes before the disk is shown. What somebody else made read-only
/// may be shown so, and is never made writable.
pub(super) fn switch(world: &World, device: &Device, read_only: bool) -> Done<()> {
    let switched = &world.switched;
    match (is_read_only(device)?, read_only) {
        (true, true) => Ok(()),
        (false, false) => switched.remove(device).at(Step::ReadDevice),
        (false, true) => {
            // Whoever comes after a kill must know.
            switched.add(device).at(Step::ReadDevice)?;
            // A disk that cannot be made read-only is not shown as one.
            set(device, true)
        }
        (true, false) if !switched.has(device) => Err(Refusal::DeviceReadOnly.into()),
        (true, false) => {
            set(device, false)?;
            switched.remove(device).at(Step::ReadDevice)
        }
    }
}

fn is_read_only(device: &Device) -> Done<bool> {
    sys::is_read_only(device).at(Step::ReadDevice)
}

fn set(device: &Device, read_only: bool) -> Done<()> {
    sys::set_read_only(device, read_only).map_err(|_| Refusal::Unsupported)?;
    if is_read_only(device)? == read_only {
        Ok(())
    } else {
        Err(Refusal::Unsupported.into())
    }
}

/// A helper that was killed may have left the disk switched to read-only: whoever is to write to it finds it writable, unless
/// it is still published so, or somebody else switched it.
pub(super) fn writable(world: &World, device: &Device) -> Done<()> {
    if is_read_only(device)?
        && world.switched.has(device)
        && let Some(other) = publications(world, device)?.first()
    {
        return Err(held_at(world, other).into());
    }
    switch(world, device, false)
}

/// The last raw publication is gone: the disk is as it was. A disk that has left the node needs nothing.
pub(super) fn released(world: &World, volume: &VolumeId) -> Done<()> {
    let device = match world.find_known(volume, None, Access::ReadOnly) {
        Err(DeviceError::Absent) => return Ok(()),
        other => other.at(Step::FindDevice)?,
    };
    if world.switched.has(&device) && publications(world, &device)?.is_empty() {
        switch(world, &device, false)?;
    }
    Ok(())
}

/// A helper that kept no record of what it made read-only has left its publications.
pub fn take_over(world: &World) {
    let Ok(mounts) = world.table.read() else {
        return;
    };
    for mount in mounts.iter().filter(|mount| mount.read_only) {
        let relative = world.root.relative(mount);
        let Some(number) = relative.and_then(|relative| world.root.bound_node(&relative)) else {
            continue;
        };
        if let Some(sequence) = world.disks.sequence_of(number) {
            // In vain it stays read-only, and the refusal says so.
            let _ = world.switched.insert((sequence, number));
        }
    }
}

/// The refusal because of another raw publication.
pub(super) fn held_at(world: &World, other: &VolumeMount) -> Refused {
    let place = other.path.as_deref().unwrap_or_default();
    let seen = world.root.named(place);
    Refused {
        reason: Refusal::StillHeld,
        seen: seen.map(Seen::MountedAt),
    }
}
