//! Decides when a failed call is sent again. The SDK sends once; this is the only place that
//! repeats a call.
//!
//! A read is repeated. A change is repeated only when it certainly had no effect (throttled, never
//! sent) or when sending it twice has the effect of sending it once (a client token, tags, a
//! deletion). Every other failure goes back to the caller, who looks first.

use std::time::Duration;

use crate::error::code::Ec2ErrorKind as Kind;
use crate::error::{Ec2Error, Sent};

/// The attempts after which a failure other than throttling is returned: the caller's own retry
/// then decides better.
const MAX_ATTEMPTS: u32 = 4;

/// Returns how long to wait before attempt `attempts + 1`, or `None` when the error goes back to
/// the caller.
///
/// `fraction` is a random number in 0..1.
pub(crate) fn pause(error: &Ec2Error, attempts: u32, fraction: f64) -> Option<Duration> {
    let is_retried = match error.kind {
        // Repeated for as long as the caller waits; the call keeps its place in the queue.
        Kind::Throttled => true,
        Kind::Unreachable | Kind::TagConflict => attempts < MAX_ATTEMPTS,
        Kind::ServerError | Kind::NoAnswer | Kind::Unreadable => {
            attempts < MAX_ATTEMPTS && (error.sent == Sent::Not || error.action.is_idempotent())
        }
        _ => false,
    };
    is_retried.then(|| backoff(attempts, fraction))
}

/// Returns between half and all of 100 ms, doubled for each further attempt, at most 5 s.
pub(crate) fn backoff(attempts: u32, fraction: f64) -> Duration {
    let longest = (0.1 * f64::from(1u32 << attempts.saturating_sub(1).min(10))).min(5.0);
    Duration::from_secs_f64(longest * (0.5 + fraction / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Action;

    fn error(action: Action, kind: Kind, sent: Sent) -> Ec2Error {
        Ec2Error::new(kind, action, sent, "")
    }

    #[test]
    fn retry_requires_no_effect_or_idempotent_action() {
        let rows = [
            (Action::AttachVolume, Kind::Throttled, Sent::Answered, true),
            (Action::AttachVolume, Kind::Unreachable, Sent::Not, true),
            (Action::AttachVolume, Kind::NoAnswer, Sent::Maybe, false),
            (Action::AttachVolume, Kind::ServerError, Sent::Maybe, false),
            (Action::AttachVolume, Kind::Unreadable, Sent::Maybe, false),
            (Action::DetachVolume, Kind::ServerError, Sent::Maybe, false),
            (Action::ModifyVolume, Kind::NoAnswer, Sent::Maybe, false),
            (Action::CreateSnapshot, Kind::NoAnswer, Sent::Maybe, false),
            (Action::CreateSnapshot, Kind::Throttled, Sent::Answered, true),
            (Action::CreateVolume, Kind::NoAnswer, Sent::Maybe, true),
            (Action::DeleteVolume, Kind::ServerError, Sent::Maybe, true),
            (Action::CreateTags, Kind::TagConflict, Sent::Answered, true),
            (Action::DescribeVolumes, Kind::Unreadable, Sent::Answered, true),
            (Action::DescribeVolumes, Kind::Unauthorized, Sent::Answered, false),
            (Action::CreateVolume, Kind::InvalidParameter, Sent::Answered, false),
            (Action::CreateVolume, Kind::NoCapacity, Sent::Answered, false),
            (Action::CreateVolume, Kind::Credential, Sent::Not, false),
            (Action::CreateVolume, Kind::Deadline, Sent::Not, false),
            (Action::AttachVolume, Kind::Unwanted, Sent::Not, false),
        ];
        for (action, kind, sent, want) in rows {
            let is_retried = pause(&error(action, kind, sent), 1, 0.5).is_some();
            assert_eq!(is_retried, want, "{action} {kind:?} {sent:?}");
        }
    }

    #[test]
    fn throttled_call_retries_forever_server_error_3_times() {
        let throttled = error(Action::AttachVolume, Kind::Throttled, Sent::Answered);
        let down = error(Action::CreateVolume, Kind::ServerError, Sent::Maybe);
        assert!(pause(&throttled, 1000, 0.9).is_some_and(|p| p <= Duration::from_secs(5)));
        assert!(pause(&down, 3, 0.0).is_some());
        assert!(pause(&down, 4, 0.0).is_none());
    }
}
