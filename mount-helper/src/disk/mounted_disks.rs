//! Which disks this helper has mounted itself. When a file system of such a disk is still alive in
//! another mount namespace, then through a copy of this helper's mount, and the helper may handle
//! it as one. A file system that somebody else mounted belongs to them.
use crate::disk::attachments::Attachments;
use crate::disk::content;
use crate::disk::device::Device;
use crate::disk::filesystem_identifier;
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_wire::VolumeId;
use rustix::io::Errno;

/// The disks and partitions that were mounted.
#[derive(Debug, Default)]
pub(crate) struct MountedDisks(Attachments<()>);

impl MountedDisks {
    /// Notes that the device is mounted at a place of this helper.
    pub(crate) fn add(&self, sequence: u64, number: DeviceNumber) {
        self.0.insert((sequence, number), ());
    }

    /// Returns whether the device was mounted since this helper started.
    pub(crate) fn has(&self, sequence: u64, number: DeviceNumber) -> bool {
        self.0.has((sequence, number))
    }

    /// Returns whether the device was mounted since this helper started, or holds a file system
    /// that this driver made for the volume, which an earlier helper may have mounted.
    pub(crate) fn accounts_for(&self, device: &Device, volume: &VolumeId) -> Result<bool, Errno> {
        if self.has(device.sequence(), device.number()) {
            return Ok(true);
        }
        Ok(content::identifier(&content::head(device)?)
            == Some(filesystem_identifier::identifier(volume)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::attachments::MOST;

    #[test]
    fn full_mounted_list_drops_oldest_disk() {
        let (disk, other) = (DeviceNumber(7), DeviceNumber(8));
        let mounted = MountedDisks::default();
        for sequence in 0..MOST as u64 + 1 {
            mounted.add(sequence, disk);
        }
        assert!(!mounted.has(0, disk) && mounted.has(1, disk) && !mounted.has(1, other));
    }
}
