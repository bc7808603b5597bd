//! The order of requests about one volume.
//!
//! Staging, unstaging and growing a volume exclude everything else about it; publishing and unpublishing it at
//! different targets run side by side. Whoever comes second waits, as long as its own caller does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ebs_csi_wire::VolumeId;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::deadline::Deadline;

/// One place in the order for each volume that is asked about at the moment.
#[derive(Debug, Default)]
pub struct Queue {
    volumes: Mutex<HashMap<VolumeId, Weak<RwLock<()>>>>,
}

/// A place in the order; dropping it lets the next one in.
#[derive(Debug)]
#[must_use]
pub enum Turn {
    /// Alone with the volume.
    Alone(#[allow(dead_code)] OwnedRwLockWriteGuard<()>),
    /// Beside others that share.
    Shared(#[allow(dead_code)] OwnedRwLockReadGuard<()>),
}

impl Queue {
    /// Waits until nothing else is asked about the volume; `None` when the deadline passes first.
    pub async fn alone(&self, volume: &VolumeId, deadline: Deadline) -> Option<Turn> {
        let place = self.place(volume);
        tokio::time::timeout_at(deadline.instant(), place.write_owned())
            .await
            .ok()
            .map(Turn::Alone)
    }

    /// Waits until nobody is alone with the volume; `None` when the deadline passes first.
    pub async fn shared(&self, volume: &VolumeId, deadline: Deadline) -> Option<Turn> {
        let place = self.place(volume);
        tokio::time::timeout_at(deadline.instant(), place.read_owned())
            .await
            .ok()
            .map(Turn::Shared)
    }

    fn place(&self, volume: &VolumeId) -> Arc<RwLock<()>> {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = volumes.get(volume).and_then(Weak::upgrade) {
            return place;
        }
        volumes.retain(|_, place| place.strong_count() > 0);
        let place = Arc::new(RwLock::new(()));
        volumes.insert(volume.clone(), Arc::downgrade(&place));
        place
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn volume(digit: u8) -> VolumeId {
        VolumeId::parse(&format!("vol-0123456789abcdef{digit}")).unwrap()
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_millis(20))
    }

    #[tokio::test]
    async fn whoever_is_alone_excludes_the_others_of_the_same_volume_only() {
        let queue = Queue::default();
        let turn = queue.alone(&volume(1), soon()).await.unwrap();
        assert!(queue.alone(&volume(1), soon()).await.is_none());
        assert!(queue.shared(&volume(1), soon()).await.is_none());
        assert!(queue.alone(&volume(2), soon()).await.is_some());
        drop(turn);
        assert!(queue.alone(&volume(1), soon()).await.is_some());
    }

    #[tokio::test]
    async fn those_who_share_run_side_by_side() {
        let queue = Queue::default();
        let first = queue.shared(&volume(1), soon()).await.unwrap();
        let second = queue.shared(&volume(1), soon()).await.unwrap();
        assert!(queue.alone(&volume(1), soon()).await.is_none());
        drop((first, second));
        assert!(queue.alone(&volume(1), soon()).await.is_some());
    }

    #[tokio::test]
    async fn a_volume_that_nobody_asks_about_leaves_nothing_behind() {
        let queue = Queue::default();
        for digit in 0..9 {
            let _ = queue.alone(&volume(digit), soon()).await.unwrap();
        }
        assert!(queue.volumes.lock().unwrap().len() <= 1);
    }
}
