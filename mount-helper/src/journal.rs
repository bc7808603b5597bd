//! Writes one structured line per event to standard error, as text or JSON. All output of this
//! crate comes from here, except what [`crate::roles::start`] prints about the command line.
//!
//! A peer that causes an event very often cannot fill the node's log: each event has a token
//! bucket, with a limit of lines at once and a rate of lines per second. Another line counts the
//! lines that were not written.
//!
//! Values that a request or a disk can influence are escaped, so that a line is always one event.
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static JSON: AtomicBool = AtomicBool::new(false);
static ROLE: OnceLock<&'static str> = OnceLock::new();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Sets the format, once, before the first fork.
pub(crate) fn set_format(format: Format) {
    JSON.store(format == Format::Json, Ordering::Relaxed);
}

/// Sets the name of this process in its lines. Only the first call has an effect; a child that was
/// forked before it sets its own name.
pub(crate) fn set_role(role: &'static str) {
    let _ = ROLE.set(role);
}

pub(crate) fn info(event: &'static str, fields: &[(&str, &str)]) {
    write("info", event, fields);
}

/// Logs an event that an operator should look at.
pub(crate) fn warn(event: &'static str, fields: &[(&str, &str)]) {
    write("warn", event, fields);
}

/// Logs an event that ends the process or a request.
pub(crate) fn error(event: &'static str, fields: &[(&str, &str)]) {
    write("error", event, fields);
}

fn write(level: &str, event: &'static str, fields: &[(&str, &str)]) {
    let (allowed, suppressed) = bucket(&mut buckets(), event).take(Instant::now());
    if suppressed > 0 {
        write_suppressed(event, suppressed);
    }
    if allowed {
        write_line(level, event, fields);
    }
}

/// The token bucket of one event: the lines that may still be written.
#[derive(Debug)]
struct Bucket {
    event: &'static str,
    tokens: u32,
    filled: Instant,
    suppressed: u64,
}

impl Bucket {
    /// Returns how many lines may be written at once, and how many per second.
    fn rate(&self) -> (u32, u32) {
        if self.event.starts_with("peer-") {
            (50, 1)
        } else {
            // After a restart of kubelet, a full node logs some lines for each volume.
            (2000, 20)
        }
    }

    /// Returns whether a line may be written now, and how many were suppressed since the last line.
    fn take(&mut self, now: Instant) -> (bool, u64) {
        let (most, a_second) = self.rate();
        let passed = now.saturating_duration_since(self.filled).as_secs();
        if passed > 0 {
            let more = u32::try_from(passed).unwrap_or(u32::MAX);
            self.tokens = most.min(self.tokens.saturating_add(more.saturating_mul(a_second)));
            self.filled += Duration::from_secs(passed);
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                (true, std::mem::take(&mut self.suppressed))
            }
            None => {
                self.suppressed += 1;
                (false, 0)
            }
        }
    }
}

static BUCKETS: Mutex<Vec<Bucket>> = Mutex::new(Vec::new());

fn buckets() -> MutexGuard<'static, Vec<Bucket>> {
    BUCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the bucket of an event. The list has at most one bucket for each event of this program.
fn bucket<'b>(buckets: &'b mut Vec<Bucket>, event: &'static str) -> &'b mut Bucket {
    let known = buckets.iter().position(|bucket| bucket.event == event);
    let index = known.unwrap_or_else(|| {
        let mut bucket = Bucket { event, tokens: 0, filled: Instant::now(), suppressed: 0 };
        bucket.tokens = bucket.rate().0;
        buckets.push(bucket);
        buckets.len() - 1
    });
    &mut buckets[index]
}

/// Returns whether lines were suppressed that no line has counted yet.
pub(crate) fn has_suppressed_lines() -> bool {
    buckets().iter().any(|bucket| bucket.suppressed > 0)
}

pub(crate) fn report_suppressed() {
    let suppressed_events: Vec<_> = buckets()
        .iter_mut()
        .map(|bucket| (bucket.event, std::mem::take(&mut bucket.suppressed)))
        .filter(|(_, suppressed)| *suppressed > 0)
        .collect();
    for (event, suppressed) in suppressed_events {
        write_suppressed(event, suppressed);
    }
}

fn write_suppressed(event: &str, lines: u64) {
    let lines = lines.to_string();
    write_line("warn", "suppressed", &[("of", event), ("lines", &lines)]);
}

fn write_line(level: &str, event: &str, fields: &[(&str, &str)]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let role = ROLE.get().copied().unwrap_or("start");
    let line = if JSON.load(Ordering::Relaxed) {
        json(now, level, role, event, fields)
    } else {
        text(now, level, role, event, fields)
    };
    // A journal that cannot be written to must not end a mount.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn text(now: u128, level: &str, role: &str, event: &str, fields: &[(&str, &str)]) -> String {
    let mut line = format!("{} {level} {role} {event}", timestamp(now));
    for (key, value) in fields {
        let plain = !value.is_empty()
            && value.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\' && b != b'=');
        // Debug escapes quotes, backslashes and everything that does not print.
        let _ =
            if plain { write!(line, " {key}={value}") } else { write!(line, " {key}={value:?}") };
    }
    line.push('\n');
    line
}

fn json(now: u128, level: &str, role: &str, event: &str, fields: &[(&str, &str)]) -> String {
    let mut line = format!("{{\"timestamp\":\"{}\"", timestamp(now));
    let head = [("level", level), ("process", role), ("event", event)];
    for (key, value) in head.iter().chain(fields) {
        line.push_str(",\"");
        escape(&mut line, key);
        line.push_str("\":\"");
        escape(&mut line, value);
        line.push('"');
    }
    line.push_str("}\n");
    line
}

fn escape(line: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
}

/// Formats milliseconds since 1970 as RFC 3339 in UTC.
fn timestamp(milliseconds: u128) -> String {
    let seconds = i64::try_from(milliseconds / 1000).unwrap_or(0);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60,
        milliseconds % 1000
    )
}

/// Returns year, month and day of a day since 1970 in the Gregorian calendar, by counting from 1
/// March of year 0.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newline_in_journal_value_is_escaped() {
        let fields = [("path", "a b\n\"c\\"), ("volume", "vol-1")];
        let line = text(0, "info", "broker", "request", &fields);
        assert_eq!(
            line,
            "1970-01-01T00:00:00.000Z info broker request path=\"a b\\n\\\"c\\\\\" volume=vol-1\n"
        );
        let line = json(0, "info", "broker", "request", &fields);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.contains(r#""path":"a b\u000a\"c\\""#), "{line}");
    }

    #[test]
    fn rate_limited_lines_are_suppressed_and_counted() {
        let mut buckets = Vec::new();
        let bucket = bucket(&mut buckets, "peer-cut-off");
        let start = bucket.filled;
        let (most, a_second) = bucket.rate();
        for _ in 0..most {
            assert_eq!(bucket.take(start), (true, 0));
        }
        for _ in 0..1000 {
            assert_eq!(bucket.take(start), (false, 0));
        }
        let later = start + Duration::from_secs(10);
        assert_eq!(bucket.take(later), (true, 1000));
        for _ in 1..10 * a_second {
            assert_eq!(bucket.take(later), (true, 0));
        }
        assert_eq!(bucket.take(later), (false, 0));
        // However long no line is written, the bucket holds at most its initial number of tokens.
        let much_later = later + Duration::from_secs(1_000_000);
        assert!(bucket.take(much_later).0);
        assert_eq!(bucket.tokens, most - 1);
    }

    #[test]
    fn dates_are_right_around_leap_days_and_centuries() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(seconds * 1000), expected);
        }
    }
}
