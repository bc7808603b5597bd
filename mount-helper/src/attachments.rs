//! What is remembered of disks for as long as they stay attached, within bounds.
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The sequence number of a disk (`diskseq`), which the kernel gives to each attachment once, and
/// the device number of the disk or of a part of it.
pub type Attachment = (u64, u64);

/// More attachments than a node sees between two starts of its helper; beyond that the oldest are
/// forgotten.
pub(crate) const MOST: usize = 4096;

/// Something for each attachment.
#[derive(Debug)]
pub struct Attachments<T>(Mutex<BTreeMap<Attachment, T>>);

impl<T> Default for Attachments<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Attachments<T> {
    /// In the place of what was there before.
    pub fn insert(&self, attachment: Attachment, what: T) {
        let mut known = self.known();
        known.insert(attachment, what);
        if known.len() > MOST {
            known.pop_first();
        }
    }

    /// Something is remembered of it.
    pub fn has(&self, attachment: Attachment) -> bool {
        self.known().contains_key(&attachment)
    }

    /// All that is remembered, for nobody else meanwhile.
    pub fn known(&self) -> MutexGuard<'_, BTreeMap<Attachment, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
