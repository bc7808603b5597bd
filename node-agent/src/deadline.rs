//! The time until which an answer is useful to the caller.

use std::time::{Duration, Instant};

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
    #[must_use]
    pub fn of(metadata: &MetadataMap) -> Self {
        let timeout = metadata
            .get("grpc-timeout")
            .and_then(|value| value.to_str().ok())
            .and_then(parse_timeout);
        match timeout {
            Some(timeout) => {
                let timeout = timeout.min(LONGEST);
                Self {
                    at: Instant::now() + (timeout - margin(timeout)),
                    chosen_by_caller: true,
                }
            }
            None => Self::after(WITHOUT_LIMIT),
        }
    }

    /// Returns a deadline this span from now, not chosen by a caller.
    #[must_use]
    pub fn after(span: Duration) -> Self {
        Self {
            at: Instant::now() + span,
            chosen_by_caller: false,
        }
    }

    /// Returns the same deadline, or this span from now when that is sooner.
    #[must_use]
    pub fn at_most(self, span: Duration) -> Self {
        Self {
            at: self.at.min(Instant::now() + span),
            ..self
        }
    }

    /// Returns the remaining time; zero when the deadline has passed.
    #[must_use]
    pub fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Returns the deadline for tokio's timers.
    #[must_use]
    pub fn instant(self) -> tokio::time::Instant {
        self.at.into()
    }

    /// Returns whether the caller chose the deadline.
    #[must_use]
    pub fn chosen_by_caller(self) -> bool {
        self.chosen_by_caller
    }
}

/// Returns a tenth of the time, at least 5 ms and at most a second: enough for a local answer, but
/// a small part of a short limit.
fn margin(timeout: Duration) -> Duration {
    (timeout / 10)
        .clamp(Duration::from_millis(5), Duration::from_secs(1))
        .min(timeout)
}

/// Parses `TimeoutValue TimeoutUnit` of gRPC over HTTP/2: up to eight digits and one of H, M, S, m,
/// u, n.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_valid_grpc_timeout_values_are_parsed() {
        let rows = [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("30S", Some(Duration::from_secs(30))),
            ("1500m", Some(Duration::from_millis(1500))),
            ("10u", Some(Duration::from_micros(10))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("", None),
            ("m", None),
            ("10", None),
            ("-1S", None),
            ("123456789S", None),
            ("1é", None),
        ];
        for (text, want) in rows {
            assert_eq!(parse_timeout(text), want, "{text:?}");
        }
    }

    #[test]
    fn deadline_margin_never_exceeds_timeout_or_1_second() {
        for milliseconds in [0, 1, 4, 5, 50, 1000, 120_000] {
            let timeout = Duration::from_millis(milliseconds);
            assert!(margin(timeout) <= timeout);
            assert!(margin(timeout) <= Duration::from_secs(1));
        }
    }

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

    proptest! {
        #[test]
        fn arbitrary_timeout_text_never_panics(text in ".{0,12}") {
            let _ = parse_timeout(&text);
        }
    }
}
