//! Points in simulated time, the clock, and the durations of operations.

mod latency;

pub(crate) use latency::{Distribution, Latency, LatencyChange, LatencyError};

use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Milliseconds since the Unix epoch, in simulated time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Millis {
    /// Returns the time `ms` milliseconds later, or the last time that can be printed.
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)).min(LAST))
    }

    /// Returns the milliseconds from `earlier` to `self`, or 0 if `self` is earlier.
    pub fn since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// Returns the time with the milliseconds cut off, as in replies to create calls.
    pub fn whole_second(self) -> Self {
        Self(self.0 - self.0.rem_euclid(1000))
    }

    /// Returns the time in ISO 8601 with milliseconds, as EC2 writes it:
    /// `2026-09-25T19:46:13.000Z`.
    pub fn iso(self) -> String {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => t.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
            Err(_) => "9999-12-30T22:00:00.000Z".to_owned(),
        }
    }

    /// Parses an ISO 8601 time.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_millisecond()))
    }
}

/// 9999-12-30: up to here, ISO 8601 with a four-digit year can represent the time in every time
/// zone.
const LAST: i64 = 253_402_207_200_000;

/// The milliseconds of a day.
pub const DAY_MS: u64 = 24 * 3600 * 1000;

/// The clock of a running server: the machine's time at the start, then a clock that never goes
/// back.
#[derive(Debug)]
pub(crate) struct Clock {
    base: Millis,
    since: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { base: Millis(jiff::Timestamp::now().as_millisecond()), since: Instant::now() }
    }

    pub(crate) fn now(&self) -> Millis {
        let passed = self.since.elapsed().as_millis();
        self.base.plus(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_timestamps_parse_and_print_with_milliseconds() {
        let t = Millis::parse("2026-09-25T19:46:13Z").expect("parse");
        assert_eq!(t.iso(), "2026-09-25T19:46:13.000Z");
        assert_eq!(t.plus(5).iso(), "2026-09-25T19:46:13.005Z");
        assert_eq!(t.plus(5).whole_second(), t);
        assert_eq!(Millis::parse("yesterday"), None);
    }

    #[test]
    fn adding_never_overflows() {
        let end = Millis(0).plus(u64::MAX);
        assert_eq!(end.plus(u64::MAX), end);
        assert!(end.iso().starts_with("9999-"));
        assert_eq!(Millis(5).since(Millis(9)), 0);
    }
}
