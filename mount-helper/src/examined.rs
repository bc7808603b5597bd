//! Which disks a checker has looked at in full since they were attached. A helper that starts anew remembers nothing, and looks again.
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// More attachments than a node sees between two starts of its helper; beyond that the oldest are looked at again.
const MOST: usize = 4096;

/// Sequence numbers of disks (`diskseq`), which the kernel gives to each attachment once.
#[derive(Debug, Default)]
pub struct Examined(Mutex<BTreeSet<u64>>);

impl Examined {
    /// It was looked at, and nothing wrong was left.
    pub fn add(&self, sequence: u64) {
        let mut known = self.known();
        known.insert(sequence);
        if known.len() > MOST {
            known.pop_first();
        }
    }

    /// Somebody may write to it by other ways than a file system.
    pub fn forget(&self, sequence: u64) {
        self.known().remove(&sequence);
    }

    /// It was looked at.
    pub fn has(&self, sequence: u64) -> bool {
        self.known().contains(&sequence)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_examined_is_known_until_it_is_forgotten_and_no_list_grows_for_ever() {
        let examined = Examined::default();
        for sequence in 0..MOST as u64 + 1 {
            examined.add(sequence);
        }
        assert!(!examined.has(0) && examined.has(1));
        examined.forget(1);
        assert!(!examined.has(1));
        assert_eq!(examined.known().len(), MOST - 1);
    }
}
