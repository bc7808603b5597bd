//! The lifecycle of a snapshot: pending -> completed or error.

use super::Tags;
use crate::time::{DAY_MS, Millis};
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub(crate) enum SnapshotState {
    /// EC2 is still writing the snapshot. Its bytes are already those at the time of the call.
    Pending {
        until: Millis,
        /// Whether the snapshot ends in `error`.
        fails: bool,
    },
    Completed {
        since: Millis,
    },
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Lock {
    /// Whether the mode is compliance (true) or governance.
    pub(crate) compliance: bool,
    /// The hours during which a compliance lock can still be changed.
    pub(crate) cool_off_hours: u32,
    pub created: Millis,
    pub(crate) end: LockEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LockEnd {
    /// So many days after both the lock and the completion of the snapshot.
    Days(u32),
    Date(Millis),
}

/// The move of a snapshot to the archive tier, and back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Archival {
    /// Until then the snapshot is still in the standard tier.
    pub(crate) archived: Millis,
    /// When the restored snapshot is in the standard tier again.
    pub restored: Option<Millis>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Snapshot {
    pub id: String,
    pub volume: String,
    /// The size of that volume, in GiB.
    pub size: u32,
    pub(crate) started: Millis,
    pub(crate) life: SnapshotState,
    pub encrypted: bool,
    pub(crate) kms_key: Option<String>,
    pub(crate) outpost: Option<String>,
    pub(crate) description: String,
    pub(crate) lock: Option<Lock>,
    pub(crate) archival: Option<Archival>,
    pub tags: Tags,
    /// When filters by tags find the snapshot.
    pub(crate) found_by_tags: Millis,
}

impl Snapshot {
    /// Returns `pending`, `completed` or `error`.
    pub fn status(&self) -> &'static str {
        match self.life {
            SnapshotState::Pending { .. } => "pending",
            SnapshotState::Completed { .. } => "completed",
            SnapshotState::Failed => "error",
        }
    }

    /// Returns the progress: empty at first, then a percentage.
    pub(crate) fn progress(&self, now: Millis) -> String {
        match self.life {
            SnapshotState::Completed { .. } => "100%".to_owned(),
            SnapshotState::Failed => String::new(),
            SnapshotState::Pending { until, .. } => match now.since(self.started) {
                0 => String::new(),
                done => format!(
                    "{}%",
                    (done.saturating_mul(100) / until.since(self.started).max(1)).min(99)
                ),
            },
        }
    }

    pub(crate) fn due(&self) -> Option<Millis> {
        match self.life {
            SnapshotState::Pending { until, .. } => Some(until),
            SnapshotState::Completed { .. } | SnapshotState::Failed => None,
        }
    }

    /// Performs the transition that is due. Returns whether there was one.
    pub(crate) fn advance(&mut self, now: Millis) -> bool {
        match self.life {
            SnapshotState::Pending { until, fails } if until <= now => {
                self.life = if fails {
                    SnapshotState::Failed
                } else {
                    SnapshotState::Completed { since: until }
                };
                true
            }
            _ => false,
        }
    }

    /// Returns whether the snapshot is in the archive tier, where it cannot be used.
    pub(crate) fn is_archived(&self, now: Millis) -> bool {
        self.archival
            .as_ref()
            .is_some_and(|a| a.archived <= now && a.restored.is_none_or(|at| at > now))
    }

    /// Returns the lock that is in force, if any.
    pub(crate) fn locked(&self, now: Millis) -> Option<&Lock> {
        self.lock.as_ref().filter(|l| self.lock_state(l, now) != "expired")
    }

    /// Returns when the days of a lock begin; `None` before the snapshot is completed.
    pub(crate) fn lock_start(&self, l: &Lock) -> Option<Millis> {
        match self.life {
            SnapshotState::Completed { since } => Some(since.max(l.created)),
            SnapshotState::Pending { .. } | SnapshotState::Failed => None,
        }
    }

    /// Returns when a lock ends; `None` while its days have not begun.
    pub(crate) fn lock_expiry(&self, l: &Lock) -> Option<Millis> {
        match l.end {
            LockEnd::Date(at) => Some(at),
            LockEnd::Days(days) => Some(self.lock_start(l)?.plus(u64::from(days) * DAY_MS)),
        }
    }

    /// Returns `governance`, `compliance-cooloff`, `compliance` or `expired`.
    pub(crate) fn lock_state(&self, l: &Lock, now: Millis) -> &'static str {
        if self.lock_expiry(l).is_some_and(|at| at <= now) {
            "expired"
        } else if !l.compliance {
            "governance"
        } else if l.cool_off_end() > now {
            "compliance-cooloff"
        } else {
            "compliance"
        }
    }
}

impl Lock {
    /// Returns until when a lock in compliance mode can be changed or removed.
    pub(crate) fn cool_off_end(&self) -> Millis {
        self.created.plus(u64::from(self.cool_off_hours) * 3_600_000)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn fresh() -> Snapshot {
        Snapshot {
            id: "snap-0123456789abcdef0".to_owned(),
            volume: "vol-0123456789abcdef0".to_owned(),
            size: 1,
            started: Millis(0),
            life: SnapshotState::Pending { until: Millis(100), fails: false },
            encrypted: false,
            kms_key: None,
            outpost: None,
            description: String::new(),
            lock: None,
            archival: None,
            tags: Tags::default(),
            found_by_tags: Millis(0),
        }
    }

    #[test]
    fn pending_snapshot_shows_progress_and_completes() {
        let mut s = fresh();
        assert_eq!(
            (s.progress(Millis(0)), s.progress(Millis(50))),
            (String::new(), "50%".to_owned())
        );
        assert!(!s.advance(Millis(99)));
        assert!(s.advance(Millis(250)));
        assert_eq!(s.life, SnapshotState::Completed { since: Millis(100) });
        assert_eq!((s.progress(Millis(100)), s.due()), ("100%".to_owned(), None));
    }
}
