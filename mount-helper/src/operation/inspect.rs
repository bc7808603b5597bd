//! Inspect: which volumes are mounted beneath the kubelet root, as the mount table has it.
use super::raw;
use crate::outcome::{At, Done};
use crate::world::World;
use ebs_csi_wire::{HeldVolume, KubeletPath, Step, VolumeId};
use std::collections::HashMap;

/// Every staged and published volume, in the order of the mount table.
pub fn inventory(world: &World) -> Done<Vec<HeldVolume>> {
    let disks: HashMap<u64, VolumeId> = world
        .disks
        .numbered()
        .at(Step::FindDevice)?
        .into_iter()
        .filter_map(|(number, serial)| Some((number, volume_of(&serial)?)))
        .collect();
    let mounts = world.table.read().at(Step::ReadMountTable)?;
    let mut held = Vec::new();
    for mount in &mounts {
        let Some(relative) = world.root.relative(mount) else {
            continue;
        };
        let device = match disks.get(&mount.device) {
            Some(_) => mount.device,
            // A bound device node: the mount table names the file system that holds the node.
            None => match raw::bound_node(world, &relative) {
                Some(device) => device,
                None => continue,
            },
        };
        let (Some(volume), Ok(path)) = (disks.get(&device), KubeletPath::parse(&mount.path)) else {
            continue;
        };
        held.push(HeldVolume {
            volume: volume.clone(),
            path,
            read_only: mount.read_only || (device == mount.device && mount.superblock_read_only),
            staged: device == mount.device && world.looks_staged(&relative),
        });
    }
    Ok(held)
}

/// A serial is a volume id without its hyphen.
fn volume_of(serial: &str) -> Option<VolumeId> {
    VolumeId::parse(&format!("vol-{}", serial.strip_prefix("vol")?)).ok()
}
