//! What a VolumeSnapshotClass promises besides the snapshot: fast restores and a lock.
//!
//! EC2 sets them by separate calls, after the snapshot exists. So that neither is forgotten when
//! the process ends in between, the promise is recorded in the snapshot's tags when the snapshot is
//! created: a process that finds the snapshot reads the promise there, even if the class has
//! changed or is gone.

use std::fmt::Write as _;

use ebs_csi_ec2::{self as ec2, Call, Ec2, Ec2Error, Ec2ErrorKind, Locked, Timestamp};
use ebs_csi_parameters::tag::{PROMISED_FAST_RESTORES, PROMISED_LOCK};
use ebs_csi_parameters::{Lock, LockMode, SnapshotParameters, parse_time};
use ebs_csi_proto::Failure;
use ebs_csi_wire::SnapshotId;

use crate::request::tags::Tags;

/// The fast restores and the lock promised for a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) zones: Vec<String>,
    pub(super) lock: Option<Lock>,
}

impl Promise {
    pub(super) fn of(class: &SnapshotParameters) -> Self {
        Self { zones: class.fast_restore_zones.clone(), lock: class.lock.clone() }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the tags that record the promise. Spaces separate the words, because not every tag
    /// value may contain commas.
    pub(super) fn to_tags(&self) -> Tags {
        let mut tags = Tags::new();
        if !self.zones.is_empty() {
            tags.insert(PROMISED_FAST_RESTORES.to_owned(), self.zones.join(" "));
        }
        if let Some(lock) = &self.lock {
            let mut words = lock.mode.as_str().to_owned();
            // Writing to a String cannot fail.
            if let Some(days) = lock.duration_days {
                let _ = write!(words, " days={days}");
            }
            if let Some(expires) = lock.expiration {
                let _ = write!(words, " until={}", Timestamp::from(expires));
            }
            if let Some(hours) = lock.cool_off_hours {
                let _ = write!(words, " cool-off-hours={hours}");
            }
            tags.insert(PROMISED_LOCK.to_owned(), words);
        }
        tags
    }

    /// Reads the recorded promise. `None` when there is none that can be parsed: the promise of the
    /// current class then applies.
    pub(super) fn from_tags(tags: &Tags) -> Option<Self> {
        let zones = tags.get(PROMISED_FAST_RESTORES);
        let lock = tags.get(PROMISED_LOCK);
        if zones.is_none() && lock.is_none() {
            return None;
        }
        Some(Self {
            zones: zones.map_or_else(Vec::new, |zones| {
                zones.split_whitespace().map(str::to_owned).collect()
            }),
            lock: match lock {
                Some(words) => Some(parse_lock(words)?),
                None => None,
            },
        })
    }
}

fn parse_lock(words: &str) -> Option<Lock> {
    let mut words = words.split_whitespace();
    let mode = match words.next()? {
        "governance" => LockMode::Governance,
        "compliance" => LockMode::Compliance,
        _ => return None,
    };
    let mut lock = Lock { mode, duration_days: None, expiration: None, cool_off_hours: None };
    for word in words {
        match word.split_once('=')? {
            ("days", days) => lock.duration_days = Some(days.parse().ok()?),
            ("until", time) => lock.expiration = Some(parse_time(time)?),
            ("cool-off-hours", hours) => lock.cool_off_hours = Some(hours.parse().ok()?),
            _ => return None,
        }
    }
    Some(lock)
}

/// Enables the fast restores and sets the lock that a snapshot is promised. For a snapshot that was
/// found, sets only what is missing.
pub(super) async fn fulfil(
    ec2: &Ec2,
    call: &Call,
    snapshot: &SnapshotId,
    promise: &Promise,
    found: bool,
) -> Result<(), Failure> {
    let describe = |what: &str, error: &Ec2Error| {
        Failure::from(error).context(format!("snapshot {snapshot}: {what}"))
    };
    if !promise.zones.is_empty() {
        let zones = match found {
            true => missing_zones(ec2, call, snapshot, &promise.zones).await,
            false => Ok(promise.zones.clone()),
        }
        .map_err(|error| describe("which fast restores are enabled is not known", &error))?;
        if !zones.is_empty() {
            ec2.enable_fast_snapshot_restores(call, snapshot, &zones)
                .await
                .map_err(|error| describe("fast restores are not enabled", &error))?;
        }
    }
    if let Some(lock) = &promise.lock {
        let has_lock = found
            && is_locked(ec2, call, snapshot, lock)
                .await
                .map_err(|error| describe("whether it is locked is not known", &error))?;
        if !has_lock {
            let request = ec2::LockSnapshot {
                snapshot: snapshot.clone(),
                mode: lock.mode.as_str().to_owned(),
                duration_days: lock.duration_days,
                expires: lock.expiration.map(Timestamp::from),
                cool_off_hours: lock.cool_off_hours,
            };
            ec2.lock_snapshot(call, &request)
                .await
                .map_err(|error| describe("it is not locked", &error))?;
        }
    }
    Ok(())
}

async fn missing_zones(
    ec2: &Ec2,
    call: &Call,
    snapshot: &SnapshotId,
    wanted: &[String],
) -> Result<Vec<String>, Ec2Error> {
    let enabled = match ec2.fast_restore_zones(call, snapshot).await {
        Err(error) if error.kind == Ec2ErrorKind::Unauthorized => {
            return Ok(warn_and_assume(wanted, &error));
        }
        answer => answer?,
    };
    Ok(wanted.iter().filter(|zone| !enabled.contains(zone)).cloned().collect())
}

/// Returns whether the snapshot has the promised lock. An expired lock counts as kept; a weaker
/// lock than the promised one does not count.
async fn is_locked(
    ec2: &Ec2,
    call: &Call,
    snapshot: &SnapshotId,
    promised: &Lock,
) -> Result<bool, Ec2Error> {
    match ec2.snapshot_lock(call, snapshot).await {
        Err(error) if error.kind == Ec2ErrorKind::Unauthorized => {
            Ok(warn_and_assume(&false, &error))
        }
        Err(error) => Err(error),
        Ok(None) => Ok(false),
        Ok(Some(Locked::Compliance | Locked::Expired)) => Ok(true),
        Ok(Some(Locked::Governance)) => Ok(promised.mode == LockMode::Governance),
    }
}

/// Logs the refused look and returns `all`: IAM policies written for the Go driver do not allow the
/// look, and setting the same again does no harm.
fn warn_and_assume<T: ToOwned + ?Sized>(all: &T, error: &Ec2Error) -> T::Owned {
    tracing::warn!(%error, "what a snapshot has already is not known; it is set again");
    all.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    prop_compose! {
        fn promise()(zones in proptest::collection::vec("[a-z]{2}-[a-z]{4}-[1-9][a-f]", 0..4), lock in proptest::option::of((any::<bool>(), proptest::option::of(1u32..36500), proptest::option::of(0u64..4_000_000_000), proptest::option::of(1u32..72)))) -> Promise {
            Promise {
                zones,
                lock: lock.map(|(hard, duration_days, until, cool_off_hours)| Lock {
                    mode: if hard { LockMode::Compliance } else { LockMode::Governance },
                    duration_days,
                    expiration: until.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
                    cool_off_hours,
                }),
            }
        }
    }

    proptest! {
        #[test]
        fn recorded_promise_round_trips_through_tags(promise in promise()) {
            let parsed = Promise::from_tags(&promise.to_tags());
            prop_assert_eq!(parsed, Some(promise).filter(|promise| !promise.is_empty()));
        }

        #[test]
        fn arbitrary_tag_values_never_panic(zones in ".{0,20}", lock in ".{0,30}") {
            let tags = Tags::from([(PROMISED_FAST_RESTORES.to_owned(), zones), (PROMISED_LOCK.to_owned(), lock)]);
            let _ = Promise::from_tags(&tags);
        }
    }

    #[test]
    fn promise_tags_are_plain_words_invalid_ones_ignored() {
        let promise = Promise {
            zones: vec!["us-east-1a".to_owned(), "us-east-1b".to_owned()],
            lock: parse_lock("compliance days=7 cool-off-hours=24"),
        };
        let tags = promise.to_tags();
        assert_eq!(tags["ebs.csi.aws.com/fast-restore-zones"], "us-east-1a us-east-1b");
        assert_eq!(tags["ebs.csi.aws.com/lock"], "compliance days=7 cool-off-hours=24");
        for unreadable in ["", "soft", "governance days=many", "governance forever"] {
            let tags = Tags::from([(PROMISED_LOCK.to_owned(), unreadable.to_owned())]);
            assert_eq!(Promise::from_tags(&tags), None, "{unreadable}");
        }
    }
}
