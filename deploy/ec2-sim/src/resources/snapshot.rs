//! A snapshot's life: pending -> completed or error.

use super::tags::Tags;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Where a snapshot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum Life {
    /// Being written. The bytes are already those of the moment of the call.
    Pending {
        /// When it ends; `None`: never.
        until: Option<Millis>,
        /// It ends in `error`.
        fails: bool,
    },
    /// Usable.
    Completed {
        /// Since when.
        since: Millis,
    },
    /// Failed, kept.
    Failed,
}

/// A lock against deletion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Compliance (true) or governance.
    pub compliance: bool,
    /// Hours in which a compliance lock can still be changed.
    pub cool_off_hours: u32,
    /// Days from creation; `None` when an expiration date was given.
    pub days: Option<u32>,
    /// When LockSnapshot was accepted.
    pub created: Millis,
    /// When the lock ends.
    pub expires: Millis,
}

/// A snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    /// `snap-…`.
    pub id: String,
    /// The volume it was taken of.
    pub volume: String,
    /// GiB of that volume.
    pub size: u32,
    /// When CreateSnapshot was accepted.
    pub started: Millis,
    /// Where it stands.
    pub life: Life,
    /// The description.
    pub description: String,
    /// As the volume.
    pub encrypted: bool,
    /// As the volume.
    pub kms_key: Option<String>,
    /// The Outpost that was named.
    pub outpost: Option<String>,
    /// Bytes of data when it was taken.
    pub data_bytes: u64,
    /// The lock.
    pub lock: Option<Lock>,
    /// Tags.
    pub tags: Tags,
}

impl Snapshot {
    /// `pending`, `completed`, `error`.
    pub fn status(&self) -> &'static str {
        match self.life {
            Life::Pending { .. } => "pending",
            Life::Completed { .. } => "completed",
            Life::Failed => "error",
        }
    }

    /// Empty at first, then a percentage.
    pub fn progress(&self, now: Millis) -> String {
        match self.life {
            Life::Completed { .. } => "100%".to_owned(),
            Life::Failed => String::new(),
            Life::Pending { until: None, .. } => "99%".to_owned(),
            Life::Pending {
                until: Some(until), ..
            } => match now.since(self.started) {
                0 => String::new(),
                done => format!(
                    "{}%",
                    (done.saturating_mul(100) / until.since(self.started).max(1)).min(99)
                ),
            },
        }
    }

    /// When something is due.
    pub fn due(&self) -> Option<Millis> {
        match self.life {
            Life::Pending { until, .. } => until,
            Life::Completed { .. } | Life::Failed => None,
        }
    }

    /// Takes the step that is due. True if there was one.
    pub fn advance(&mut self, now: Millis) -> bool {
        match self.life {
            Life::Pending {
                until: Some(until),
                fails,
            } if until <= now => {
                self.life = if fails {
                    Life::Failed
                } else {
                    Life::Completed { since: until }
                };
                true
            }
            _ => false,
        }
    }

    /// The lock that is in force.
    pub fn locked(&self, now: Millis) -> Option<&Lock> {
        self.lock.as_ref().filter(|l| l.expires > now)
    }
}

impl Lock {
    /// `governance`, `compliance-cooloff`, `compliance`, `expired`.
    pub fn state(&self, now: Millis) -> &'static str {
        if self.expires <= now {
            "expired"
        } else if !self.compliance {
            "governance"
        } else if self.cool_off_until() > now {
            "compliance-cooloff"
        } else {
            "compliance"
        }
    }

    /// When the cooling-off period of a compliance lock ends.
    pub fn cool_off_until(&self) -> Millis {
        self.created
            .plus(u64::from(self.cool_off_hours) * 3_600_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(fails: bool) -> Snapshot {
        Snapshot {
            id: "snap-0123456789abcdef0".to_owned(),
            volume: "vol-0123456789abcdef0".to_owned(),
            size: 1,
            started: Millis(0),
            life: Life::Pending {
                until: Some(Millis(100)),
                fails,
            },
            description: String::new(),
            encrypted: false,
            kms_key: None,
            outpost: None,
            data_bytes: 0,
            lock: None,
            tags: Tags::default(),
        }
    }

    #[test]
    fn pending_snapshot_shows_progress_and_completes() {
        let mut s = fresh(false);
        assert_eq!(
            (s.progress(Millis(0)), s.progress(Millis(50))),
            (String::new(), "50%".to_owned())
        );
        assert!(!s.advance(Millis(99)));
        assert!(s.advance(Millis(250)));
        assert_eq!(s.life, Life::Completed { since: Millis(100) });
        assert_eq!(
            (s.progress(Millis(100)), s.due()),
            ("100%".to_owned(), None)
        );
    }

    #[test]
    fn a_failing_snapshot_ends_in_error() {
        let mut s = fresh(true);
        assert!(s.advance(Millis(100)));
        assert_eq!(s.status(), "error");
    }

    #[test]
    fn snapshot_lock_passes_cooloff_then_expires() {
        let hour = 3_600_000;
        let l = Lock {
            compliance: true,
            cool_off_hours: 2,
            days: Some(1),
            created: Millis(0),
            expires: Millis(24 * hour),
        };
        let state = |t| l.state(Millis(t));
        assert_eq!(
            [state(hour), state(3 * hour), state(24 * hour)],
            ["compliance-cooloff", "compliance", "expired"]
        );
    }
}
