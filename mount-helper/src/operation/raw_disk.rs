//! A disk that is published raw: where, and whether the kernel accepts writes to it.
//!
//! A read-only bind mount of a device node prevents no write, because the node is only a name of
//! the disk. Instead, the disk itself is switched (`BLKROSET`), for all users on the node, so that
//! all raw publications of a disk are either read-only or writable.
use crate::disk::device::{Access, Device, DeviceError};
use crate::mount::mount_table::Mount;
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done};
use crate::sys;
use ebs_csi_policy::facts::VolumeMount;
use ebs_csi_wire::{Observation, Refusal, Refused, Step, VolumeId};

/// Returns every place beneath the kubelet root where the node of this device is bound, or the node
/// of a device that shares bytes with it: a partition of this disk, or the disk that this is a
/// partition of.
pub(super) fn publications(context: &OperationContext, device: &Device) -> Done<Vec<VolumeMount>> {
    let mounts = context.mount_table.read().at(Step::ReadMountTable)?;
    Ok(publications_in(context, device, &mounts))
}

/// Does the same as [`publications`] in a table that was read already.
pub(super) fn publications_in(
    context: &OperationContext,
    device: &Device,
    mounts: &[Mount],
) -> Vec<VolumeMount> {
    mounts
        .iter()
        .filter_map(|mount| {
            // The mount table names the node within the file system that holds it.
            let name = mount.root_name();
            if !name.starts_with(device.disk()) {
                return None;
            }
            let relative = context.root.relative(mount)?;
            let node = context.root.bound_node(&relative)?;
            device
                .overlaps(&context.disks, name, node)
                .then_some(VolumeMount { path: Some(relative), read_only: mount.read_only })
        })
        .collect()
}

/// Returns whether the mount is of a file system that shares bytes with the device.
pub(super) fn overlaps(context: &OperationContext, device: &Device, mount: &Mount) -> bool {
    let name = mount.source.rsplit('/').next().unwrap_or_default();
    device.overlaps(&context.disks, name, mount.device)
}

/// Has the kernel refuse or accept writes before the disk is published. A disk that somebody else
/// made read-only can be published read-only, and is never made writable.
pub(super) fn switch(context: &OperationContext, device: &Device, read_only: bool) -> Done<()> {
    let switched = &context.read_only_record;
    match (is_read_only(device)?, read_only) {
        (true, true) => Ok(()),
        (false, false) => switched.remove(device).at(Step::ReadDevice),
        (false, true) => {
            // The record is written first, so that a helper that starts after a kill knows that
            // this driver switched the disk.
            switched.add(device).at(Step::ReadDevice)?;
            // A disk that cannot be made read-only is not published read-only.
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
    if is_read_only(device)? == read_only { Ok(()) } else { Err(Refusal::Unsupported.into()) }
}

/// Makes the disk writable for a request that writes to it. A helper that was killed may have left
/// the disk read-only. Refuses while the disk is still published read-only, or when somebody else
/// made it read-only.
pub(super) fn make_writable(context: &OperationContext, device: &Device) -> Done<()> {
    if is_read_only(device)?
        && context.read_only_record.has(device)
        && let Some(other) = publications(context, device)?.first()
    {
        return Err(held_at(context, other).into());
    }
    switch(context, device, false)
}

/// Makes the disk writable again after its last raw publication is gone. Does nothing for a disk
/// that has left the node.
pub(super) fn restore_writable(context: &OperationContext, volume: &VolumeId) -> Done<()> {
    let device = match context.find_known(volume, None, Access::ReadOnly) {
        Err(DeviceError::Absent) => return Ok(()),
        other => other.at(Step::FindDevice)?,
    };
    if context.read_only_record.has(&device) && publications(context, &device)?.is_empty() {
        switch(context, &device, false)?;
    }
    Ok(())
}

/// Records the read-only raw publications of a helper that kept no such record.
pub(crate) fn record_earlier_publications(context: &OperationContext) {
    let Ok(mounts) = context.mount_table.read() else {
        return;
    };
    for mount in mounts.iter().filter(|mount| mount.read_only) {
        let relative = context.root.relative(mount);
        let Some(number) = relative.and_then(|relative| context.root.bound_node(&relative)) else {
            continue;
        };
        if let Some(sequence) = context.disks.sequence_of(number) {
            // When this fails, the disk stays read-only, and a later refusal says so.
            let _ = context.read_only_record.insert((sequence, number));
        }
    }
}

/// Builds the refusal that names another raw publication.
pub(super) fn held_at(context: &OperationContext, other: &VolumeMount) -> Refused {
    let place = other.path.as_deref().unwrap_or_default();
    let seen = context.root.absolute_path(place);
    Refused { reason: Refusal::StillHeld, seen: seen.map(Observation::MountedAt) }
}
