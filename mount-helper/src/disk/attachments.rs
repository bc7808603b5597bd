//! What this process remembers of disks for as long as they stay attached.
use crate::disk::content;
use crate::disk::device::{Attachment, Device};
use crate::disk::filesystem_identifier;
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_wire::VolumeId;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest number of attachments that are kept. A node sees fewer between two starts of its helper;
/// beyond this number the oldest are forgotten.
pub(crate) const MOST: usize = 4096;

/// A map from attachments to facts about them.
#[derive(Debug)]
pub(crate) struct Attachments<T>(Mutex<BTreeMap<Attachment, T>>);

impl<T> Default for Attachments<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Attachments<T> {
    /// Stores `what` for the attachment and replaces an earlier value.
    pub(crate) fn insert(&self, attachment: Attachment, what: T) {
        let mut stored = self.lock();
        stored.insert(attachment, what);
        if stored.len() > MOST {
            stored.pop_first();
        }
    }

    /// Returns whether a value is stored for the attachment.
    pub(crate) fn has(&self, attachment: Attachment) -> bool {
        self.lock().contains_key(&attachment)
    }

    /// Locks the map and returns all that is stored.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<Attachment, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The disks and partitions that a checker has examined in full, and those that were published raw.
/// A new helper remembers nothing, and examines the disks again.
#[derive(Debug, Default)]
pub(crate) struct ExaminedDisks {
    sound: Attachments<()>,
    raw: Attachments<()>,
}

impl ExaminedDisks {
    /// Notes that the device was examined and that no error was left.
    pub(crate) fn add(&self, device: &Device) {
        self.sound.insert(device.attachment(), ());
    }

    /// Notes that the device can be written to other than through a file system.
    pub(crate) fn note_raw_use(&self, device: &Device) {
        self.forget(device.sequence());
        self.raw.insert(device.attachment(), ());
    }

    /// Returns whether the device, or one that shares bytes with it, was published raw since it was
    /// attached.
    pub(crate) fn was_used_raw(&self, device: &Device) -> bool {
        self.raw.lock().keys().any(|(sequence, number)| {
            let (own, whole) = (device.number(), device.whole());
            *sequence == device.sequence() && (*number == own || *number == whole || own == whole)
        })
    }

    fn forget(&self, sequence: u64) {
        self.sound.lock().retain(|(of, _), ()| *of != sequence);
    }

    /// Returns whether the device was examined.
    pub(crate) fn has(&self, device: &Device) -> bool {
        self.sound.has(device.attachment())
    }
}

/// The disks and partitions that this helper has mounted. When a file system of such a disk is
/// still alive in another mount namespace, then through a copy of this helper's mount, and the
/// helper may handle it as one. A file system that somebody else mounted belongs to them.
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
    pub(crate) fn is_own_mount(&self, device: &Device, volume: &VolumeId) -> Result<bool, Errno> {
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

    #[test]
    fn examined_disks_are_known_until_forgotten_or_evicted() {
        let attached = |sequence| (sequence, DeviceNumber(7));
        let examined = ExaminedDisks::default();
        for sequence in 0..MOST as u64 + 1 {
            examined.sound.insert(attached(sequence), ());
        }
        assert!(!examined.sound.has(attached(0)) && examined.sound.has(attached(1)));
        examined.forget(1);
        assert!(!examined.sound.has(attached(1)));
        assert_eq!(examined.sound.lock().len(), MOST - 1);
    }

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
