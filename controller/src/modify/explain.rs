//! Why EC2 does not accept a modification now, and when it will.
//!
//! A refusal after which nothing of the request is under way is final. external-resizer lets the
//! user return to another size or class only after a final code; it reads ABORTED, UNAVAILABLE and
//! RESOURCE_EXHAUSTED as "may be under way" (its `IsFinalError`). It repeats the request after both
//! kinds.

use ebs_csi_ec2::{Ec2Error, Ec2ErrorKind, Modification, Timestamp};
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::VolumeId;

/// Estimates are rounded up to a quarter of an hour, so that the text of a repeated answer stays
/// the same for a while.
const QUARTER_SECONDS: i64 = 15 * 60;

pub(super) fn pending(id: &VolumeId, what: &str) -> Failure {
    Failure::pending(format!("volume {id}: {what}; ask again later"))
}

/// Returns the failure of a volume whose last modification is still optimizing.
pub(super) fn optimizing(latest: &Modification, now: Timestamp) -> Failure {
    let end = match estimated_end(latest, now) {
        Some(end) => format!("at its pace it ends about {end}"),
        None => "EC2 does not say yet when it ends".to_owned(),
    };
    let began = latest.started.map_or(String::new(), |began| format!(", begun {began}"));
    Failure::new(
        Condition::Local,
        format!(
            "volume {} is still optimizing after its last modification ({} %{began}); {end}, and EC2 takes the next one then; the volume is \
             usable meanwhile, and the request is repeated",
            latest.volume, latest.progress
        ),
    )
}

/// Returns when a modification ends if it continues at its pace so far. A progress of 100 % without
/// the state `completed` gives no estimate.
fn estimated_end(latest: &Modification, now: Timestamp) -> Option<Timestamp> {
    let began = latest.started?.seconds;
    let so_far = now.seconds.checked_sub(began).filter(|span| *span > 0)?;
    let percent = Some(latest.progress).filter(|percent| (1..100).contains(percent))?;
    let end = began.checked_add(so_far.checked_mul(100)? / percent)?;
    Some(Timestamp {
        seconds: (end + QUARTER_SECONDS - 1).div_euclid(QUARTER_SECONDS) * QUARTER_SECONDS,
        nanoseconds: 0,
    })
}

pub(super) fn refused(error: &Ec2Error, latest: Option<&Modification>) -> Failure {
    match error.kind {
        Ec2ErrorKind::ModificationRunning => Failure::new(
            Condition::Throttled,
            format!(
                "the volume is being modified, and EC2 takes the next modification when that has ended; the request is repeated: {error}"
            ),
        ),
        Ec2ErrorKind::ModificationRate => {
            let when = match (parse_wait_until(&error.message), latest.and_then(|m| m.started)) {
                (Some(time), _) => format!("takes the next one at {time}"),
                (None, Some(last)) => {
                    format!("does not say when it takes the next one; the last began {last}")
                }
                (None, None) => "does not say when it takes the next one".to_owned(),
            };
            Failure::new(
                Condition::Local,
                format!(
                    "EC2 allows only so many modifications of one volume in 24 hours and {when}; the volume stays usable as it is: {error}"
                ),
            )
        }
        Ec2ErrorKind::VolumeQuota | Ec2ErrorKind::IopsQuota | Ec2ErrorKind::ModificationQuota => {
            error.failure_as(Condition::Local)
        }
        _ => error.into(),
    }
}

/// Returns the time in EC2's message "Wait until …".
fn parse_wait_until(message: &str) -> Option<Timestamp> {
    let (_, rest) = message.split_once("until ")?;
    Timestamp::parse(rest.split_whitespace().next()?.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_ec2::{Action, ModificationState, Performance, Sent};

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn running(progress: i64, started: Option<&str>) -> Modification {
        Modification {
            volume: VolumeId::parse("vol-0123456789abcdef0").unwrap(),
            state: ModificationState::Optimizing,
            original: Performance::default(),
            target: Performance::default(),
            progress,
            message: None,
            started: started.map(at),
            ended: None,
        }
    }

    #[test]
    fn optimization_end_is_estimated_if_pace_is_known() {
        const BEGUN: &str = "2026-09-25T10:00:00Z";
        let now = at("2026-09-25T11:00:00Z");
        for (progress, started, end) in [
            (25, Some(BEGUN), "about 2026-09-25T14:00:00Z"),
            (40, Some(BEGUN), "about 2026-09-25T12:30:00Z"),
            (99, Some(BEGUN), "about 2026-09-25T11:15:00Z"),
            (0, Some(BEGUN), "does not say yet"),
            (100, Some(BEGUN), "does not say yet"),
            (50, None, "does not say yet"),
            (50, Some("2026-09-25T12:00:00Z"), "does not say yet"),
        ] {
            let failure = optimizing(&running(progress, started), now);
            assert_eq!(failure.condition(), Condition::Local);
            assert!(failure.text().contains(end), "{progress}: {failure}");
        }
        // A minute later the text is the same.
        let later = optimizing(&running(25, Some(BEGUN)), at("2026-09-25T10:59:30Z"));
        assert_eq!(later, optimizing(&running(25, Some(BEGUN)), now));
    }

    #[test]
    fn refused_modification_reports_cooldown_end_if_known() {
        let refusal = |message: &str| {
            let (kind, action) = (Ec2ErrorKind::ModificationRate, Action::ModifyVolume);
            let error = Ec2Error::new(kind, action, Sent::Answered, message);
            Ec2Error { request_id: Some("r-1".to_owned()), ..error }
        };
        let last = running(100, Some("2026-09-25T10:00:00Z"));
        for (message, latest, words) in [
            (
                "You've reached the maximum modification rate per volume limit. Wait until 2026-09-26T10:00:00.000Z before you can issue the next modification request for this volume.",
                Some(&last),
                "takes the next one at 2026-09-26T10:00:00Z",
            ),
            (
                "Wait at least 6 hours between modifications per EBS volume.",
                Some(&last),
                "the last began 2026-09-25T10:00:00Z",
            ),
            ("", None, "does not say when"),
        ] {
            let failure = refused(&refusal(message), latest);
            assert_eq!(failure.condition(), Condition::Local);
            assert!(failure.text().contains(words) && failure.text().contains("r-1"), "{failure}");
        }
    }
}
