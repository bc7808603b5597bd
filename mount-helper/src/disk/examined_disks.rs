//! What this process remembers of disks for as long as they stay attached: which ones a checker has
//! examined in full, and which ones were published raw. A new helper remembers nothing, and
//! examines the disks again.
use crate::disk::attachments::Attachments;
use crate::disk::device::Device;

/// The disks and partitions that were examined, and those that were published raw.
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
    pub(crate) fn used_raw(&self, device: &Device) {
        self.leave(device.sequence());
        self.raw.insert(device.attachment(), ());
    }

    /// Returns whether the device, or one that shares bytes with it, was published raw since it was
    /// attached.
    pub(crate) fn was_used_raw(&self, device: &Device) -> bool {
        self.raw.known().keys().any(|(sequence, number)| {
            let (own, whole) = (device.number(), device.whole());
            *sequence == device.sequence() && (*number == own || *number == whole || own == whole)
        })
    }

    fn leave(&self, sequence: u64) {
        self.sound.known().retain(|(of, _), ()| *of != sequence);
    }

    /// Returns whether the device was examined.
    pub(crate) fn has(&self, device: &Device) -> bool {
        self.sound.has(device.attachment())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::attachments::MOST;
    use ebs_csi_policy::facts::DeviceNumber;

    #[test]
    fn examined_disks_are_known_until_forgotten_or_evicted() {
        let attached = |sequence| (sequence, DeviceNumber(7));
        let examined = ExaminedDisks::default();
        for sequence in 0..MOST as u64 + 1 {
            examined.sound.insert(attached(sequence), ());
        }
        assert!(!examined.sound.has(attached(0)) && examined.sound.has(attached(1)));
        examined.leave(1);
        assert!(!examined.sound.has(attached(1)));
        assert_eq!(examined.sound.known().len(), MOST - 1);
    }
}
