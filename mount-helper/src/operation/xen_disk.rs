//! A disk without a serial, which is found by its name: nothing known about the disk may contradict
//! that it is the volume's, and from then on the disk is remembered as the volume's.
use super::raw_disk;
use crate::disk::content;
use crate::disk::device::{Device, XenDisk};
use crate::disk::filesystem_identifier;
use crate::disk::xen_disk_record::RecordError;
use crate::journal;
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done, failed};
use ebs_csi_policy::judge::disk_by_name::{self, Before, Mark, NameFacts, Use};
use ebs_csi_wire::{Disk, Refusal, Step, VolumeId};
use std::time::Duration;

/// Number of retries while a disk is busy, 20 ms apart.
const BUSY_RETRIES: usize = 10;

/// Checks that nothing contradicts the disk's name. A disk with a serial needs no further proof.
pub(super) fn check(context: &OperationContext, requested: &Disk, device: &Device) -> Done<()> {
    let Some(disk) = device.by_name() else {
        return Ok(());
    };
    let before = match context.xen_disk_record.volume_of(&disk) {
        None => Before::Nothing,
        Some(volume) if volume == requested.volume => Before::ThisVolume,
        Some(other) => {
            log_contradiction(requested, device, "taken-for", other.as_str());
            Before::Another
        }
    };
    // An earlier decision that is remembered settles the question alone.
    let facts = if before == Before::Nothing {
        NameFacts {
            before,
            other_disk: has_other_disk(context, &requested.volume, disk),
            mark: read_mark(requested, device)?,
            used: find_use(context, device, disk)?,
        }
    } else {
        NameFacts { before, other_disk: false, mark: Mark::None, used: Use::Nobody }
    };
    disk_by_name::judge(requested, &facts).map_err(|reason| match reason {
        Refusal::StillHeld => context.in_use_refusal(reason, device.number(), "").into(),
        _ => reason.into(),
    })
}

/// Remembers the disk as the volume's. Must be called before anything is written to the disk or it
/// is published.
pub(super) fn remember(context: &OperationContext, requested: &Disk, device: &Device) -> Done<()> {
    let Some(disk) = device.by_name() else {
        return Ok(());
    };
    match context.xen_disk_record.add(disk, &requested.volume) {
        Ok(false) => Ok(()),
        Ok(true) => {
            let device_name = requested.device_hint.as_ref().map_or("", |name| name.as_str());
            journal::warn(
                "disk-by-name",
                &[
                    ("volume", requested.volume.as_str()),
                    ("disk", &device.path()),
                    ("told", device_name),
                    ("diskseq", &disk.sequence.to_string()),
                    ("meaning", "the disk has no serial: its name is taken for its identity"),
                ],
            );
            Ok(())
        }
        Err(RecordError::Another) => Err(Refusal::DeviceMismatch.into()),
        Err(RecordError::Os(errno)) => Err(failed(Step::FindDevice, errno)),
    }
}

/// Checks that the mounted disk is this one and not one that left the node before it. With Xen the
/// next disk at a name gets the device number of the last one, and only a mount of this disk has
/// claimed it.
pub(super) fn verify_mounted(context: &OperationContext, device: &Device) -> Done<()> {
    context.verify(device)?;
    if device.by_name().is_some() && device.is_free(&context.disks).at(Step::FindDevice)? {
        return Err(Refusal::DeviceMismatch.into());
    }
    Ok(())
}

fn has_other_disk(context: &OperationContext, volume: &VolumeId, disk: XenDisk) -> bool {
    context
        .xen_disk_record
        .disks_of(volume)
        .into_iter()
        .any(|other| other != disk && context.disks.xen_disk(other.number) == Some(other))
}

fn read_mark(requested: &Disk, device: &Device) -> Done<Mark> {
    let head = content::head(device).at(Step::ReadDevice)?;
    let volume = content::identifier(&head).and_then(filesystem_identifier::volume_of);
    Ok(match volume {
        None => Mark::None,
        Some(volume) if volume == requested.volume => Mark::ThisVolume,
        Some(other) => {
            log_contradiction(requested, device, "identifier-of", other.as_str());
            Mark::Another
        }
    })
}

fn find_use(context: &OperationContext, device: &Device, disk: XenDisk) -> Done<Use> {
    if context.is_mounted_elsewhere(disk)? {
        return Ok(Use::Elsewhere);
    }
    let mut mounted = false;
    for number in &context.disks.numbers_of(disk).at(Step::FindDevice)? {
        if context.disks.holder_of(*number).at(Step::FindDevice)?.is_some() {
            return Ok(Use::Elsewhere);
        }
        mounted |= !context.root.mounts_of(*number, &context.mount_table)?.is_empty();
    }
    let mut free = device.is_free(&context.disks).at(Step::FindDevice)?;
    for _ in 0..BUSY_RETRIES {
        if free || mounted {
            break;
        }
        // A program that only reads disks holds the disk for a moment.
        std::thread::sleep(Duration::from_millis(20));
        free = device.is_free(&context.disks).at(Step::FindDevice)?;
    }
    Ok(match (mounted, free) {
        (true, true) => Use::Former,
        (true, false) => Use::Kubelet,
        (false, true) => Use::Nobody,
        // A pod to which the disk was published raw may have claimed it.
        (false, false) if !raw_disk::publications(context, device)?.is_empty() => Use::Kubelet,
        (false, false) => Use::Elsewhere,
    })
}

fn log_contradiction(requested: &Disk, device: &Device, what: &str, other: &str) {
    journal::warn(
        "name-contradicted",
        &[("volume", requested.volume.as_str()), ("disk", &device.path()), (what, other)],
    );
}
