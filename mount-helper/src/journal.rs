//! Writes one structured line per event to standard error, as text or JSON. All output of this
//! crate comes from here, except what [`crate::roles::start`] prints about the command line.
//!
//! The standard error of the processes that the supervisor watches is a pipe to the supervisor,
//! which limits the lines of each event. A line is written by one call and is not longer than a
//! pipe takes at once, so that lines of different processes do not mix.
//!
//! Values that a request or a disk can influence are escaped, so that a line is always one event.
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

static JSON: AtomicBool = AtomicBool::new(false);
static ROLE: OnceLock<&'static str> = OnceLock::new();
/// What every line of JSON begins with.
const JSON_START: &str = "{\"timestamp\":\"";

/// Has the lines written as JSON, or not; once, before the first fork.
pub(crate) fn set_json(json: bool) {
    JSON.store(json, Ordering::Relaxed);
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

fn write(level: &str, event: &str, fields: &[(&str, &str)]) {
    let line = line(level, ROLE.get().copied().unwrap_or("start"), event, fields);
    // A journal that cannot be written to must not end a mount.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Returns one line of at most [`libc::PIPE_BUF`] bytes; longer values are cut.
pub(crate) fn line(level: &str, role: &str, event: &str, fields: &[(&str, &str)]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let form = if JSON.load(Ordering::Relaxed) { json } else { text };
    let mut line = form(now, level, role, event, fields);
    let mut longest = libc::PIPE_BUF;
    while line.len() > libc::PIPE_BUF && longest > 0 {
        longest /= 2;
        let cut = fields.iter().map(|(key, value)| {
            let end = value.floor_char_boundary(longest);
            (*key, &value[..end])
        });
        let cut: Vec<_> = cut.chain([("cut", "yes")]).collect();
        line = form(now, level, role, event, &cut);
    }
    line
}

/// Returns the process and the event of a line of this program; `None` for another line.
pub(crate) fn origin(line: &[u8]) -> Option<(&str, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let Some(json) = line.strip_prefix(JSON_START) else {
        let mut words = line.split_ascii_whitespace();
        return Some((words.nth(2)?, words.next()?));
    };
    // Between the quotes stand the time, level, process and event, each after three other parts.
    let mut quoted = json.split('"').step_by(4).skip(2);
    Some((quoted.next()?, quoted.next()?))
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
    let mut line = format!("{JSON_START}{}\"", timestamp(now));
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
    fn process_and_event_are_read_from_line() {
        let fields = [("why", "a \"b\" c")];
        for form in [text, json] {
            for fields in [&fields[..], &[]] {
                let line = form(0, "warn", "broker", "peer-cut-off", fields);
                assert_eq!(origin(line.as_bytes()), Some(("broker", "peer-cut-off")), "{line}");
            }
        }
        for other in
            [&b"free(): invalid pointer\n"[..], b"\xff a b c d\n", b"\n", b"{\"timestamp\":\"\n"]
        {
            assert_eq!(origin(other), None, "{other:?}");
        }
    }

    #[test]
    fn long_values_are_cut_to_atomic_write() {
        let (long, longer) = ("\u{1}".repeat(3000), "ä".repeat(5000));
        let fields = [("short", "whole"), ("tail", long.as_str()), ("path", longer.as_str())];
        let line = line("info", "broker", "tool", &fields);
        assert!(line.len() <= libc::PIPE_BUF && line.ends_with(" cut=yes\n"), "{line}");
        assert!(line.contains(" short=whole tail=") && line.contains(" path=\"ä"), "{line}");
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
