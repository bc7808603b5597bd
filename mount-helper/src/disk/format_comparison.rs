//! State of the comparisons between the content of a disk and a format of its volume that is made
//! again in memory. One comparison runs at a time, with bounded memory and time. A difference that
//! was found is remembered while the disk stays attached, so that the comparison is not repeated.
use crate::disk::attachments::Attachments;
use crate::disk::device::Device;
use crate::disk::device::opener_messages::Witness;
use ebs_csi_policy::facts::Content;
use ebs_csi_policy::format_option::FormatOptions;
use ebs_csi_wire::FsType;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// Longest time for all formats of one comparison. Formats with the usual options take some
/// seconds.
pub(crate) const TIME: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) content: Content,
    /// Identifier that every format of the volume gets.
    pub(crate) uuid: [u8; 16],
    pub(crate) fs: FsType,
    pub(crate) format: FormatOptions,
}

/// The inputs of a comparison, and a piece of the disk that the format does not explain.
type Difference = (Compared, Option<Witness>);

#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    running: Mutex<()>,
    differences: Attachments<Difference>,
}

impl Comparisons {
    /// Acquires the right to compare, which lasts until the guard is dropped; returns None while
    /// another comparison runs.
    pub(crate) fn begin(&self) -> Option<MutexGuard<'_, ()>> {
        match self.running.try_lock() {
            Ok(right) => Some(right),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the result of an earlier comparison with the same inputs that found something else
    /// than the format: a piece of the disk that the format does not explain, where there is one.
    /// Returns None when no such comparison is remembered.
    pub(crate) fn find_difference(
        &self,
        device: &Device,
        compared: &Compared,
    ) -> Option<Option<Witness>> {
        let differences = self.differences.lock();
        let (before, witness) = differences.get(&device.attachment())?;
        (before == compared).then_some(*witness)
    }

    /// Remembers that the disk holds something else than the format.
    pub(crate) fn remember_difference(
        &self,
        device: &Device,
        compared: Compared,
        witness: Option<Witness>,
    ) {
        self.differences.insert(device.attachment(), (compared, witness));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::attachments::MOST;
    use ebs_csi_policy::facts::DeviceNumber;

    fn compared(at: u64) -> Difference {
        let compared = Compared {
            content: Content::Unknown { at },
            uuid: [7; 16],
            fs: FsType::Ext4,
            format: FormatOptions::default(),
        };
        (compared, None)
    }

    #[test]
    fn only_one_comparison_runs_at_a_time() {
        let comparisons = Comparisons::default();
        let right = comparisons.begin();
        assert!(right.is_some() && comparisons.begin().is_none());
        drop(right);
        assert!(comparisons.begin().is_some());
    }

    #[test]
    fn full_comparison_list_drops_oldest_keeps_latest_verdict() {
        let attached = |sequence| (sequence, DeviceNumber(7));
        let comparisons = Comparisons::default();
        for sequence in 0..MOST as u64 + 1 {
            comparisons.differences.insert(attached(sequence), compared(1));
        }
        comparisons.differences.insert(attached(1), compared(2));
        let differences = comparisons.differences.lock();
        assert_eq!(differences.len(), MOST);
        assert_eq!(differences.get(&attached(0)), None);
        assert_eq!(differences.get(&attached(1)), Some(&compared(2)));
    }
}
