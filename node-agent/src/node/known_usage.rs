//! What was last known of each place's usage, and which file systems do not answer. A hung file system holds a question for as long
//! as it hangs: whoever asks about it is answered from here.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use ebs_csi_wire::{KubeletPath, Usage, VolumeId};

/// One entry for each place that was asked about and is still there.
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
    /// The place answered. True when its file system had hung before.
    pub(super) fn answered(&self, volume: &VolumeId, path: &KubeletPath, usage: Usage) -> bool {
        let mut state = self.state();
        let entry = (volume.clone(), usage);
        state.places.insert(path.as_str().to_owned(), entry);
        state.hung.remove(volume)
    }

    /// The place did not answer in time. True when it is the first time, and what was last known of it.
    pub(super) fn hangs(&self, volume: &VolumeId, path: &KubeletPath) -> (bool, Option<Usage>) {
        let mut state = self.state();
        let known = state.places.get(path.as_str());
        let known = known
            .filter(|(whose, _)| whose == volume)
            .map(|(_, usage)| *usage);
        (state.hung.insert(volume.clone()), known)
    }

    /// The volume is not at the path any more.
    pub(super) fn left(&self, path: &KubeletPath) {
        self.state().places.remove(path.as_str());
    }

    /// The volume is not on this node any more. True when its file system had hung.
    pub(super) fn gone(&self, volume: &VolumeId) -> bool {
        let mut state = self.state();
        state.places.retain(|_, (whose, _)| whose != volume);
        state.hung.remove(volume)
    }

    /// The volumes whose file systems do not answer.
    pub(super) fn hung(&self) -> Vec<VolumeId> {
        self.state().hung.iter().cloned().collect()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hung_place_keeps_what_was_known_until_it_is_gone() {
        let volume = VolumeId::parse("vol-0123456789abcdef0").unwrap();
        let other = VolumeId::parse("vol-0123456789abcdef1").unwrap();
        let path = KubeletPath::parse("/var/lib/kubelet/pods/u/volumes/x/v/mount").unwrap();
        let usage = Usage {
            total_bytes: 7,
            ..Usage::default()
        };
        let known = KnownUsage::default();
        assert_eq!(known.hangs(&volume, &path), (true, None));
        assert!(known.answered(&volume, &path, usage));
        assert!(!known.answered(&volume, &path, usage));
        assert_eq!(known.hangs(&volume, &path), (true, Some(usage)));
        assert_eq!(known.hangs(&volume, &path), (false, Some(usage)));
        assert_eq!(known.hung(), std::slice::from_ref(&volume));
        // Another volume's numbers are not given for this one.
        assert_eq!(known.hangs(&other, &path), (true, None));
        known.left(&path);
        assert_eq!(known.hangs(&volume, &path), (false, None));
        assert!(known.gone(&volume) && !known.gone(&volume));
    }
}
