//! Inspect: lists the volumes that are mounted beneath the kubelet root, from the mount table.
use crate::operation::OperationContext;
use crate::outcome::{At, Result};
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_wire::{HeldVolume, Step, VolumeId};
use std::collections::HashMap;

/// Returns every staged and published volume, in the order of the mount table.
pub(crate) fn inventory(context: &OperationContext) -> Result<Vec<HeldVolume>> {
    let mut disks: HashMap<DeviceNumber, KnownVolume> = context
        .disks
        .numbers_and_serials()
        .at(Step::FindDevice)?
        .into_iter()
        .filter_map(|(number, serial)| Some((number, by_serial(&serial)?)))
        .collect();
    for known in context.disks.disks_taken_for(None).at(Step::FindDevice)? {
        disks.extend(known.volume.map(|volume| (known.disk.number, (volume, true))));
    }
    let mounts = context.mount_table.read().at(Step::ReadMountTable)?;
    let mut held = Vec::new();
    for mount in &mounts {
        let Some(relative) = context.root.relative(mount) else {
            continue;
        };
        let volume_at = |device| disks.get(&device).cloned().or_else(|| part(context, device));
        let (device, (volume, by_name)) = match volume_at(mount.device) {
            Some(volume) => (mount.device, volume),
            // A bound device node: the mount table names the file system that holds the node.
            None => match context.root.bound_node(&relative).map(|node| (node, volume_at(node))) {
                Some((device, Some(volume))) => (device, volume),
                _ => continue,
            },
        };
        let Some(path) = context.root.absolute_path(&relative) else {
            continue;
        };
        held.push(HeldVolume {
            volume,
            path,
            read_only: mount.read_only || (device == mount.device && mount.superblock_read_only),
            // Beneath `pods/` are the places for a pod's use.
            staged: device == mount.device && !relative.starts_with("pods/"),
            by_name,
        });
    }
    Ok(held)
}

/// A volume, and whether its disk was recognised by its name.
type KnownVolume = (VolumeId, bool);

/// Returns the volume whose disk has a partition with this device number.
fn part(context: &OperationContext, device: DeviceNumber) -> Option<KnownVolume> {
    context.disks.partition_of(device)?;
    match context.disks.serial_of(device) {
        Some(serial) => by_serial(&serial),
        None => Some((context.disks.known_disk(device)?.volume?, true)),
    }
}

/// Parses a serial, which is a volume id without its hyphen.
fn by_serial(serial: &str) -> Option<KnownVolume> {
    let volume = VolumeId::parse(&format!("vol-{}", serial.strip_prefix("vol")?)).ok()?;
    Some((volume, false))
}
