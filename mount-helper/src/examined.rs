//! What is remembered of disks since they were attached: which a checker has looked at in full, and
//! which a container had raw. A helper that starts anew remembers nothing, and looks again.
use crate::attachments::Attachments;
use crate::device::Device;

/// What was looked at, and what was raw: a disk or a part of it.
#[derive(Debug, Default)]
pub struct Examined {
    sound: Attachments<()>,
    raw: Attachments<()>,
}

impl Examined {
    /// It was looked at, and nothing wrong was left.
    pub fn add(&self, device: &Device) {
        self.sound.insert(device.attachment(), ());
    }

    /// Somebody may write to it by other ways than a file system.
    pub fn used_raw(&self, device: &Device) {
        self.leave(device.sequence());
        self.raw.insert(device.attachment(), ());
    }

    /// Somebody could, since it was attached, to it or to what shares bytes with it.
    pub fn was_used_raw(&self, device: &Device) -> bool {
        self.raw.known().keys().any(|(sequence, number)| {
            let (own, whole) = (device.number(), device.whole());
            *sequence == device.sequence() && (*number == own || *number == whole || own == whole)
        })
    }

    fn leave(&self, sequence: u64) {
        self.sound.known().retain(|(of, _), ()| *of != sequence);
    }

    /// It was looked at.
    pub fn has(&self, device: &Device) -> bool {
        self.sound.has(device.attachment())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachments::MOST;

    #[test]
    fn what_was_examined_is_known_until_it_is_forgotten_and_no_list_grows_for_ever() {
        let examined = Examined::default();
        for sequence in 0..MOST as u64 + 1 {
            examined.sound.insert((sequence, 7), ());
        }
        assert!(!examined.sound.has((0, 7)) && examined.sound.has((1, 7)));
        examined.leave(1);
        assert!(!examined.sound.has((1, 7)));
        assert_eq!(examined.sound.known().len(), MOST - 1);
    }
}
