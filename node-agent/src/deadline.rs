//! The time until which an answer is useful to the caller.

use std::time::{Duration, Instant};

use ebs_csi_proto::caller_timeout;
use tonic::metadata::MetadataMap;

/// The longest wait when the caller gives no limit.
const WITHOUT_LIMIT: Duration = Duration::from_secs(110);
/// The longest limit that is accepted from a caller.
const LONGEST: Duration = Duration::from_secs(600);

/// The instant by which the answer must be sent, and whether the caller chose it.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    chosen_by_caller: bool,
}

impl Deadline {
    /// Reads the deadline from the `grpc-timeout` of a request, minus a margin for sending the
    /// answer.
    pub fn of(metadata: &MetadataMap) -> Self {
        match caller_timeout::of(metadata) {
            Some(timeout) => {
                Self { at: Instant::now() + timeout.min(LONGEST), chosen_by_caller: true }
            }
            None => Self::after(WITHOUT_LIMIT),
        }
    }

    /// Returns a deadline this span from now, not chosen by a caller.
    pub fn after(span: Duration) -> Self {
        Self { at: Instant::now() + span, chosen_by_caller: false }
    }

    /// Returns the same deadline, or this span from now when that is sooner.
    pub fn at_most(self, span: Duration) -> Self {
        Self { at: self.at.min(Instant::now() + span), ..self }
    }

    /// Returns the remaining time; zero when the deadline has passed.
    pub fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Returns the deadline for tokio's timers.
    pub fn instant(self) -> tokio::time::Instant {
        self.at.into()
    }

    /// Returns whether the caller chose the deadline.
    pub fn chosen_by_caller(self) -> bool {
        self.chosen_by_caller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_timeout_defaults_and_long_timeout_is_capped() {
        let deadline = Deadline::of(&MetadataMap::new());
        assert!(!deadline.chosen_by_caller());
        assert!(deadline.left() <= WITHOUT_LIMIT);
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", "99999999H".parse().unwrap());
        let deadline = Deadline::of(&metadata);
        assert!(deadline.chosen_by_caller() && deadline.left() <= LONGEST);
    }
}
