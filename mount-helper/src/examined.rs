//! What is remembered of disks since they were attached: which a checker has looked at in full, and
//! which a container had raw. A helper that starts anew remembers nothing, and looks again.
use crate::device::Device;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// More attachments than a node sees between two starts of its helper; beyond that the oldest are looked at again.
const MOST: usize = 4096;

/// Sequence numbers of disks (`diskseq`), which the kernel gives to each attachment once, with the device numbers of what was
/// looked at: a disk or a part of it.
#[derive(Debug, Default)]
pub struct Examined {
    sound: Mutex<BTreeSet<(u64, u64)>>,
    raw: Mutex<BTreeSet<(u64, u64)>>,
}

impl Examined {
    /// It was looked at, and nothing wrong was left.
    pub fn add(&self, device: &Device) {
        self.insert(device.sequence(), device.number());
    }

    fn insert(&self, sequence: u64, number: u64) {
        let mut known = self.known();
        known.insert((sequence, number));
        if known.len() > MOST {
            known.pop_first();
        }
    }

    /// Somebody may write to it by other ways than a file system.
    pub fn used_raw(&self, device: &Device) {
        self.leave(device.sequence());
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        raw.insert((device.sequence(), device.number()));
        if raw.len() > MOST {
            raw.pop_first();
        }
    }

    /// Somebody could, since it was attached, to it or to what shares bytes with it.
    pub fn was_used_raw(&self, device: &Device) -> bool {
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        raw.iter().any(|(sequence, number)| {
            let (own, whole) = (device.number(), device.whole());
            *sequence == device.sequence() && (*number == own || *number == whole || own == whole)
        })
    }

    fn leave(&self, sequence: u64) {
        self.known().retain(|(of, _)| *of != sequence);
    }

    /// It was looked at.
    pub fn has(&self, device: &Device) -> bool {
        self.known().contains(&(device.sequence(), device.number()))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeSet<(u64, u64)>> {
        self.sound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_examined_is_known_until_it_is_forgotten_and_no_list_grows_for_ever() {
        let examined = Examined::default();
        for sequence in 0..MOST as u64 + 1 {
            examined.insert(sequence, 7);
        }
        assert!(!examined.known().contains(&(0, 7)) && examined.known().contains(&(1, 7)));
        examined.leave(1);
        assert!(!examined.known().contains(&(1, 7)));
        assert_eq!(examined.known().len(), MOST - 1);
    }
}
