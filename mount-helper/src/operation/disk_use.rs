//! Who uses a disk besides the request: pods to which it is published raw, and holders that are not
//! this helper.
//!
//! A read-only bind mount of a device node prevents no write, because the node is only a name of
//! the disk. Instead, the disk itself is switched (`BLKROSET`), for all users on the node, so that
//! all raw publications of a disk are either read-only or writable.
//!
//! A disk that somebody else uses is refused, whatever a request says of it: the node's own disk, a
//! disk that is mounted in a namespace that this process cannot see, a disk beneath another block
//! device. The whole disk counts, also when the request is for a partition.
use crate::disk::device::{Access, Claim, Device, DeviceError, DiskPart};
use crate::mount::mount_table::Mount;
use crate::mount::propagation::PLACES;
use crate::operation::OperationContext;
use crate::outcome::{At, Result, Stop};
use crate::{journal, sys};
use ebs_csi_policy::facts::{DeviceNumber, VolumeMount};
use ebs_csi_policy::judge::disk_holders::{self, Holder, PartFacts};
use ebs_csi_policy::place::PlaceClass;
use ebs_csi_wire::{Observation, Refusal, Refused, Step, VolumeId};
use std::time::Duration;

/// Number of retries while the disk is claimed, 25 ms apart: programs that only read disks hold
/// them for a moment.
const BUSY_RETRIES: usize = 20;

/// Returns every place beneath the kubelet root where the node of this device is bound, or the node
/// of a device that shares bytes with it: a partition of this disk, or the disk that this is a
/// partition of.
pub(super) fn publications(
    context: &OperationContext,
    device: &Device,
) -> Result<Vec<VolumeMount>> {
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
pub(super) fn switch(context: &OperationContext, device: &Device, read_only: bool) -> Result<()> {
    let (switched, disk) = (&context.read_only_record, device.attachment());
    match (is_read_only(device)?, read_only) {
        (true, true) => Ok(()),
        (false, false) => switched.remove(disk).at(Step::ReadDevice),
        (false, true) => {
            // The record is written first, so that a helper that starts after a kill knows that
            // this driver switched the disk.
            switched.add(disk).at(Step::ReadDevice)?;
            // A disk that cannot be made read-only is not published read-only.
            set(device, true)
        }
        (true, false) if !switched.has(disk) => Err(Refusal::DeviceReadOnly.into()),
        (true, false) => {
            set(device, false)?;
            switched.remove(disk).at(Step::ReadDevice)
        }
    }
}

fn is_read_only(device: &Device) -> Result<bool> {
    sys::is_read_only(device).at(Step::ReadDevice)
}

fn set(device: &Device, read_only: bool) -> Result<()> {
    sys::set_read_only(device, read_only).map_err(|_| Refusal::Unsupported)?;
    if is_read_only(device)? == read_only { Ok(()) } else { Err(Refusal::Unsupported.into()) }
}

/// Makes the disk writable for a request that writes to it. A helper that was killed may have left
/// the disk read-only. Refuses while the disk is still published read-only, or when somebody else
/// made it read-only.
pub(super) fn make_writable(context: &OperationContext, device: &Device) -> Result<()> {
    if is_read_only(device)?
        && context.read_only_record.has(device.attachment())
        && let Some(other) = publications(context, device)?.first()
    {
        return Err(held_at(context, other).into());
    }
    switch(context, device, false)
}

/// Makes the disk writable again after its last raw publication is gone. Does nothing for a disk
/// that has left the node.
pub(super) fn restore_writable(context: &OperationContext, volume: &VolumeId) -> Result<()> {
    let device = match context.find_known(volume, None, Access::ReadOnly) {
        Err(DeviceError::Absent) => return Ok(()),
        other => other.at(Step::FindDevice)?,
    };
    if context.read_only_record.has(device.attachment())
        && publications(context, &device)?.is_empty()
    {
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
            let _ = context.read_only_record.add((sequence, number));
        }
    }
}

/// Builds the refusal that names another raw publication.
pub(super) fn held_at(context: &OperationContext, other: &VolumeMount) -> Refused {
    let place = other.path.as_deref().unwrap_or_default();
    let seen = context.root.absolute_path(place);
    Refused { reason: Refusal::StillHeld, seen: seen.map(Observation::MountedAt) }
}

/// Refuses while anything but the mounts and raw publications of this helper holds the disk or a
/// partition of it. `claimed_next` is the device that the caller claims exclusively afterwards,
/// whose claim is therefore not tested here.
pub(super) fn check_no_other_holder(
    context: &OperationContext,
    device: &Device,
    table: &[Mount],
    claimed_next: Option<DeviceNumber>,
) -> Result<()> {
    let parts = device.parts(&context.disks).at(Step::FindDevice)?;
    let mut facts = collect_facts(context, device, &parts, table, claimed_next)?;
    let over = context.disks.loop_device_on(&parts).at(Step::FindDevice)?;
    let mut tries = 0;
    loop {
        test_claims(context, device, &parts, &mut facts)?;
        match disk_holders::judge(&facts, over.is_some()) {
            Ok(()) => return Ok(()),
            Err(Holder::Claimed(_)) if tries < BUSY_RETRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(25));
            }
            Err(held) => return Err(refusal(context, table, &parts, held, over.as_deref())),
        }
    }
}

/// Claims the disk, to keep others from it until the publication is complete. Returns None when a
/// pod has the disk already and may have claimed it.
pub(super) fn claim_unless_published(
    context: &OperationContext,
    device: &Device,
    table: &[Mount],
) -> Result<Option<Claim>> {
    if !publications_in(context, device, table).is_empty() {
        return Ok(None);
    }
    context.claim(device, Access::ReadOnly).map(Some)
}

/// Collects what the mount table and sysfs show of each part.
fn collect_facts(
    context: &OperationContext,
    device: &Device,
    parts: &[DiskPart],
    table: &[Mount],
    claimed_next: Option<DeviceNumber>,
) -> Result<Vec<PartFacts>> {
    let mut facts = Vec::with_capacity(parts.len());
    for part in parts {
        facts.push(PartFacts {
            was_mounted: context.mounted_disks.has(device.sequence(), part.number),
            layered: context.disks.holder_of(part.number).at(Step::FindDevice)?.is_some(),
            claimed_next: claimed_next == Some(part.number),
            ..PartFacts::default()
        });
    }
    let of = |number| parts.iter().position(|part| part.number == number);
    for mount in table {
        let relative = context.root.relative(mount);
        if let Some(part) = of(mount.device) {
            match relative.as_deref() {
                Some(relative) if is_own_place(context, relative) => facts[part].mounted = true,
                _ => facts[part].mounted_elsewhere = true,
            }
        }
        let name = mount.root_name();
        if let Some(relative) = relative
            && name.starts_with(device.disk())
            && let Some(part) = context.root.bound_node(&relative).and_then(of)
        {
            facts[part].shown = true;
        }
    }
    Ok(facts)
}

/// Returns whether a mount at this path is of this helper or derived from one: the path lies where
/// volumes are staged and published. Kubelet makes further mounts of them beneath a pod's directory
/// (`volume-subpaths`). A mount on one of these directories itself is not of this helper.
pub(super) fn is_own_place(context: &OperationContext, relative: &str) -> bool {
    let beneath =
        |place: &str| relative.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
    PLACES.iter().any(|place| beneath(place))
        || (context.rules.places() == PlaceClass::Any
            && beneath("plugins")
            && !PLACES.contains(&relative))
}

/// Tests whether each part is claimed; the kernel does not say by whom. The whole disk is not
/// tested when the caller claims it.
fn test_claims(
    context: &OperationContext,
    device: &Device,
    parts: &[DiskPart],
    facts: &mut [PartFacts],
) -> Result<()> {
    let Some((whole, partitions)) = facts.split_first_mut() else {
        return Ok(());
    };
    let claimed = |part: &DiskPart| device.is_claimed(&context.disks, part).at(Step::ClaimDevice);
    whole.claimed = !whole.claimed_next && claimed(&parts[0])?;
    for (part, facts) in parts[1..].iter().zip(partitions) {
        // While the disk is not claimed, no partition is.
        facts.claimed = whole.claimed && claimed(part)?;
    }
    Ok(())
}

fn refusal(
    context: &OperationContext,
    table: &[Mount],
    parts: &[DiskPart],
    held: Holder,
    over: Option<&str>,
) -> Stop {
    let holder;
    let (part, by) = match held {
        Holder::Mounted(part) => {
            let mut of_it = table.iter().filter(|mount| mount.device == parts[part].number);
            let elsewhere = of_it.find(|mount| {
                let relative = context.root.relative(mount);
                !relative.is_some_and(|relative| is_own_place(context, &relative))
            });
            let seen = elsewhere.and_then(|mount| context.root.place_of(mount));
            return Refused { reason: Refusal::StillHeld, seen: seen.map(Observation::MountedAt) }
                .into();
        }
        Holder::Layered(part) => {
            holder = context.disks.holder_of(parts[part].number);
            let name = holder.as_ref().ok().and_then(Option::as_deref);
            (part, name.unwrap_or("a block device"))
        }
        Holder::BeneathLoop => (0, over.unwrap_or("a loop device")),
        Holder::Claimed(part) => {
            (part, "an exclusive claim: a mount out of sight, swap, or a program")
        }
    };
    journal::warn("disk-held", &[("disk", &parts[part].name), ("by", by)]);
    Refusal::StillHeld.into()
}
