//! A point of wall-clock time as EC2 reports it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;

/// Seconds and nanoseconds since 1970-01-01T00:00:00Z. `Display` writes RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since the epoch.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Returns how long ago this was at `now`; zero for a time in the future.
    #[must_use]
    pub fn age(self, now: SystemTime) -> Duration {
        now.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .saturating_sub(Duration::new(self.seconds.max(0).unsigned_abs(), self.nanoseconds))
    }

    /// Parses RFC 3339 (`2026-09-25T19:46:13.000Z`).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        DateTime::from_str(text, Format::DateTimeWithOffset).ok().map(|t| Self::from(&t))
    }

    pub(crate) fn to_sdk(self) -> DateTime {
        DateTime::from_secs_and_nanos(self.seconds, self.nanoseconds)
    }
}

impl From<&DateTime> for Timestamp {
    fn from(time: &DateTime) -> Self {
        Self { seconds: time.secs(), nanoseconds: time.subsec_nanos() }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self::from(&DateTime::from(time))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only years beyond 9999 cannot be formatted; EC2 reports none.
        match self.to_sdk().fmt(Format::DateTime) {
            Ok(text) => f.write_str(&text),
            Err(_) => write!(f, "{}s since 1970", self.seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractional_seconds_parse_regardless_of_digit_count() {
        assert_eq!(
            Timestamp::parse("2026-09-25T19:46:13.37Z"),
            Timestamp::parse("2026-09-25T19:46:13.370Z")
        );
        assert_eq!(
            Timestamp::parse("2026-09-25T19:46:13.37Z").map(|t| t.nanoseconds),
            Some(370_000_000)
        );
    }

    #[test]
    fn times_read_and_write_rfc_3339() {
        for text in ["2026-09-25T19:46:13.025Z", "2026-09-25T19:46:13Z", "1970-01-01T00:00:00Z"] {
            assert_eq!(Timestamp::parse(text).map(|t| t.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn an_age_is_never_negative() {
        let t = Timestamp { seconds: 100, nanoseconds: 0 };
        assert_eq!(t.age(UNIX_EPOCH + Duration::from_secs(130)), Duration::from_secs(30));
        assert_eq!(t.age(UNIX_EPOCH + Duration::from_secs(30)), Duration::ZERO);
    }
}
