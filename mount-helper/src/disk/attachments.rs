//! A bounded store of facts about disks, each kept for one attachment of a disk.
use ebs_csi_policy::facts::DeviceNumber;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The sequence number of a disk (`diskseq`), which the kernel gives to each attachment once, and
/// the device number of the disk or of a partition of the disk.
pub(crate) type Attachment = (u64, DeviceNumber);

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
        let mut known = self.known();
        known.insert(attachment, what);
        if known.len() > MOST {
            known.pop_first();
        }
    }

    /// Returns whether a value is stored for the attachment.
    pub(crate) fn has(&self, attachment: Attachment) -> bool {
        self.known().contains_key(&attachment)
    }

    /// Locks the map and returns all that is stored.
    pub(crate) fn known(&self) -> MutexGuard<'_, BTreeMap<Attachment, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
