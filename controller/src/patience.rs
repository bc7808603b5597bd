//! How long a caller waits for an answer.

use std::time::Duration;

/// The time by which the driver answers early, so that the answer arrives before the caller's own
/// deadline ends the call with a less useful error.
const MARGIN: Duration = Duration::from_millis(100);

/// Returns the time that a gRPC call leaves the driver, from its `grpc-timeout` header; `None` when
/// the caller waits for ever.
pub fn of<T>(request: &tonic::Request<T>) -> Option<Duration> {
    let header = request.metadata().get("grpc-timeout")?.to_str().ok()?;
    let timeout = parse(header)?;
    Some(timeout.saturating_sub(MARGIN.min(timeout / 10)))
}

/// Parses a header value: up to 8 digits and a unit (gRPC over HTTP/2, "Timeout").
fn parse(header: &str) -> Option<Duration> {
    let (digits, unit) = header.split_at_checked(header.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        let rows = [
            ("1H", Some(3_600_000_000_000)),
            ("2M", Some(120_000_000_000)),
            ("15S", Some(15_000_000_000)),
            ("250m", Some(250_000_000)),
            ("99999999n", Some(99_999_999)),
            ("7u", Some(7_000)),
            ("", None),
            ("S", None),
            ("1", None),
            ("-1S", None),
            ("123456789S", None),
            ("1ä", None),
        ];
        for (header, nanos) in rows {
            assert_eq!(parse(header), nanos.map(Duration::from_nanos), "{header}");
        }
    }

    /// The driver answers 10 % before the caller's own deadline, at most 100 ms before.
    #[test]
    fn deadline_keeps_margin_of_at_most_100_ms() {
        let mut request = tonic::Request::new(());
        assert_eq!(of(&request), None);
        request.set_timeout(Duration::from_secs(10));
        assert_eq!(of(&request), Some(Duration::from_millis(9_900)));
        request.set_timeout(Duration::from_millis(100));
        assert_eq!(of(&request), Some(Duration::from_millis(90)));
    }
}
