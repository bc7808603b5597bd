//! The last known usage of each place, and the file systems that do not answer. A hung file system
//! blocks a stats request for as long as it hangs; callers get the last known usage from here.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use ebs_csi_proto::lock;
use ebs_csi_wire::{KubeletPath, Usage, VolumeId};

/// One entry for each place that was queried and still exists.
#[derive(Debug, Default)]
pub(super) struct KnownUsage {
    state: Mutex<State>,
}

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
        let mut state = lock(&self.state);
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
        let mut state = lock(&self.state);
        let known = state.places.get(path.as_str());
        let known = known.filter(|(owner, _)| owner == volume).map(|(_, usage)| *usage);
        (state.hung.insert(volume.clone()), known)
    }

    /// Records that the volume is no longer at the path.
    pub(super) fn remove_path(&self, path: &KubeletPath) {
        lock(&self.state).places.remove(path.as_str());
    }

    /// Records that the volume is no longer on this node. Returns whether its file system had hung.
    pub(super) fn remove_volume(&self, volume: &VolumeId) -> bool {
        let mut state = lock(&self.state);
        state.places.retain(|_, (owner, _)| owner != volume);
        state.hung.remove(volume)
    }

    /// Returns the volumes whose file systems do not answer.
    pub(super) fn hung(&self) -> Vec<VolumeId> {
        lock(&self.state).hung.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
