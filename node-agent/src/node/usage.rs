//! Space and inodes: as CSI reports them, and the last known ones of each place.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use ebs_csi_proto::csi::{self, volume_usage::Unit};
use ebs_csi_proto::lock;
use ebs_csi_wire::{KubeletPath, Usage, VolumeId};

/// Returns one entry for bytes, and one for inodes where they are counted.
pub(super) fn entries(usage: &Usage) -> Vec<csi::VolumeUsage> {
    let mut entries = vec![csi::VolumeUsage {
        available: signed(usage.available_bytes),
        total: signed(usage.total_bytes),
        used: signed(usage.used_bytes),
        unit: Unit::Bytes as i32,
    }];
    // btrfs and raw devices count no inodes.
    if usage.total_inodes > 0 && !usage.block {
        entries.push(csi::VolumeUsage {
            available: signed(usage.available_inodes),
            total: signed(usage.total_inodes),
            used: signed(usage.used_inodes),
            unit: Unit::Inodes as i32,
        });
    }
    entries
}

/// Converts to CSI's signed numbers; a larger size becomes the largest one.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The last known usage of each place that was queried and still exists, and the file systems that
/// do not answer. A hung file system blocks a stats request for as long as it hangs; callers get
/// the last known usage from here.
#[derive(Debug, Default)]
pub(super) struct KnownUsage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    places: HashMap<String, (VolumeId, Usage)>,
    hung: BTreeSet<VolumeId>,
}

impl KnownUsage {
    /// Records that the place answered. Returns whether its file system had hung before.
    pub(super) fn record_answer(
        &self,
        volume: &VolumeId,
        path: &KubeletPath,
        usage: Usage,
    ) -> bool {
        let mut state = lock(&self.0);
        let entry = (volume.clone(), usage);
        state.places.insert(path.as_str().to_owned(), entry);
        state.hung.remove(volume)
    }

    /// Records that the place did not answer in time. Returns whether this is the first time, and
    /// the last known usage of the place.
    pub(super) fn record_hang(
        &self,
        volume: &VolumeId,
        path: &KubeletPath,
    ) -> (bool, Option<Usage>) {
        let mut state = lock(&self.0);
        let known = state.places.get(path.as_str());
        let known = known.filter(|(owner, _)| owner == volume).map(|(_, usage)| *usage);
        (state.hung.insert(volume.clone()), known)
    }

    /// Records that the volume is no longer at the path.
    pub(super) fn remove_path(&self, path: &KubeletPath) {
        lock(&self.0).places.remove(path.as_str());
    }

    /// Records that the volume is no longer on this node. Returns whether its file system had hung.
    pub(super) fn remove_volume(&self, volume: &VolumeId) -> bool {
        let mut state = lock(&self.0);
        state.places.retain(|_, (owner, _)| owner != volume);
        state.hung.remove(volume)
    }

    /// Returns the volumes whose file systems do not answer.
    pub(super) fn hung(&self) -> Vec<VolumeId> {
        lock(&self.0).hung.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A raw device has 1 entry, bytes; a file system with an inode count has 2.
    #[test]
    fn only_file_systems_with_inode_counts_report_inodes() {
        let usage = Usage {
            total_bytes: u64::MAX,
            used_bytes: 1,
            available_bytes: 2,
            total_inodes: 3,
            used_inodes: 1,
            available_inodes: 2,
            ..Usage::default()
        };
        let both = entries(&usage);
        assert_eq!(both.len(), 2);
        assert_eq!(both[0].total, i64::MAX);
        assert_eq!((both[1].total, both[1].unit), (3, Unit::Inodes as i32));
        assert_eq!(entries(&Usage { block: true, ..usage }).len(), 1);
        let uncounted = Usage { total_inodes: 0, ..usage };
        assert_eq!(entries(&uncounted).len(), 1);
    }

    #[test]
    fn hung_path_keeps_last_usage_until_volume_leaves() {
        let volume = VolumeId::parse("vol-0123456789abcdef0").unwrap();
        let other = VolumeId::parse("vol-0123456789abcdef1").unwrap();
        let path = KubeletPath::parse("/var/lib/kubelet/pods/u/volumes/x/v/mount").unwrap();
        let usage = Usage { total_bytes: 7, ..Usage::default() };
        let known = KnownUsage::default();
        assert_eq!(known.record_hang(&volume, &path), (true, None));
        assert!(known.record_answer(&volume, &path, usage));
        assert!(!known.record_answer(&volume, &path, usage));
        assert_eq!(known.record_hang(&volume, &path), (true, Some(usage)));
        assert_eq!(known.record_hang(&volume, &path), (false, Some(usage)));
        assert_eq!(known.hung(), std::slice::from_ref(&volume));
        // The usage of one volume is not returned for another volume.
        assert_eq!(known.record_hang(&other, &path), (true, None));
        known.remove_path(&path);
        assert_eq!(known.record_hang(&volume, &path), (false, None));
        assert!(known.remove_volume(&volume) && !known.remove_volume(&volume));
    }
}
