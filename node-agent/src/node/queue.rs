//! The order of requests about one volume.
//!
//! Staging, unstaging and growing a volume exclude every other request about it; requests to
//! publish and unpublish it at different targets run in parallel. A later request waits until its
//! turn or its caller's deadline.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use ebs_csi_proto::{Failure, lock};
use ebs_csi_wire::VolumeId;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout_at;

use crate::deadline::Deadline;
use crate::helper::call_failure::NodeCall;

/// One lock for each volume that has a request now.
#[derive(Debug, Default)]
pub(super) struct Queue {
    volumes: Mutex<HashMap<VolumeId, Weak<RwLock<()>>>>,
}

/// A turn; dropping it admits the next request.
#[derive(Debug)]
#[must_use]
pub(super) enum Turn {
    /// The request excludes all others about the volume.
    Exclusive(#[allow(dead_code)] OwnedRwLockWriteGuard<()>),
    /// The request runs in parallel with others that share.
    Shared(#[allow(dead_code)] OwnedRwLockReadGuard<()>),
}

impl Queue {
    /// Waits until no other request about the volume runs.
    ///
    /// # Errors
    /// ABORTED when the deadline passes first.
    pub(super) async fn exclusive(
        &self,
        call: NodeCall,
        volume: &VolumeId,
        deadline: Deadline,
    ) -> Result<Turn, Failure> {
        let turn = timeout_at(deadline.instant(), self.lock(volume).write_owned()).await;
        turn.map(Turn::Exclusive).map_err(|_| missed(call, volume))
    }

    /// Waits until no exclusive request about the volume runs.
    pub(super) async fn shared(
        &self,
        call: NodeCall,
        volume: &VolumeId,
        deadline: Deadline,
    ) -> Result<Turn, Failure> {
        let turn = timeout_at(deadline.instant(), self.lock(volume).read_owned()).await;
        turn.map(Turn::Shared).map_err(|_| missed(call, volume))
    }

    fn lock(&self, volume: &VolumeId) -> Arc<RwLock<()>> {
        let mut volumes = lock(&self.volumes);
        if let Some(lock) = volumes.get(volume).and_then(Weak::upgrade) {
            return lock;
        }
        volumes.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(RwLock::new(()));
        volumes.insert(volume.clone(), Arc::downgrade(&lock));
        lock
    }
}

fn missed(call: NodeCall, volume: &VolumeId) -> Failure {
    Failure::pending(format!(
        "{} {volume}: another request about the volume is still running; retry",
        call.verb()
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const STAGE: NodeCall = NodeCall::Stage;

    fn volume(digit: u8) -> VolumeId {
        VolumeId::parse(&format!("vol-0123456789abcdef{digit}")).unwrap()
    }

    fn short_deadline() -> Deadline {
        Deadline::after(Duration::from_millis(20))
    }

    #[tokio::test]
    async fn exclusive_turn_blocks_only_same_volume() {
        let queue = Queue::default();
        let turn = queue.exclusive(STAGE, &volume(1), short_deadline()).await.unwrap();
        assert!(queue.exclusive(STAGE, &volume(1), short_deadline()).await.is_err());
        assert!(queue.shared(STAGE, &volume(1), short_deadline()).await.is_err());
        assert!(queue.exclusive(STAGE, &volume(2), short_deadline()).await.is_ok());
        drop(turn);
        assert!(queue.exclusive(STAGE, &volume(1), short_deadline()).await.is_ok());
    }

    #[tokio::test]
    async fn shared_turns_coexist_and_block_exclusive_turn() {
        let queue = Queue::default();
        let first = queue.shared(STAGE, &volume(1), short_deadline()).await.unwrap();
        let second = queue.shared(STAGE, &volume(1), short_deadline()).await.unwrap();
        assert!(queue.exclusive(STAGE, &volume(1), short_deadline()).await.is_err());
        drop((first, second));
        assert!(queue.exclusive(STAGE, &volume(1), short_deadline()).await.is_ok());
    }

    /// The entry of the last idle volume may stay until the next request arrives.
    #[tokio::test]
    async fn queue_drops_entries_of_idle_volumes() {
        let queue = Queue::default();
        for digit in 0..9 {
            let _ = queue.exclusive(STAGE, &volume(digit), short_deadline()).await.unwrap();
        }
        assert!(queue.volumes.lock().unwrap().len() <= 1);
    }
}
