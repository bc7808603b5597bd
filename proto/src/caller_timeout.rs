//! How long a caller waits for an answer.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// The greatest margin.
const MAX_MARGIN: Duration = Duration::from_millis(100);
/// The least margin, unless the timeout is shorter.
const MIN_MARGIN: Duration = Duration::from_millis(5);

/// Returns the time that a gRPC call leaves its callee, from its `grpc-timeout` header; `None` when
/// the caller waits for ever.
///
/// A tenth of the timeout, at most 100 ms, is kept as a margin, so that the answer arrives before
/// the caller's own deadline ends the call with a less useful error.
pub fn of(metadata: &MetadataMap) -> Option<Duration> {
    let header = metadata.get("grpc-timeout")?.to_str().ok()?;
    let timeout = parse(header)?;
    let margin = (timeout / 10).clamp(MIN_MARGIN, MAX_MARGIN);
    Some(timeout.saturating_sub(margin))
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
    use proptest::prelude::*;

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

    #[test]
    fn margin_is_tenth_within_5_and_100_ms() {
        assert_eq!(of(&MetadataMap::new()), None);
        for (timeout, left) in [(10_000, 9_900), (100, 90), (20, 15), (3, 0)] {
            let mut request = tonic::Request::new(());
            request.set_timeout(Duration::from_millis(timeout));
            let left = Duration::from_millis(left);
            assert_eq!(of(request.metadata()), Some(left), "{timeout}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_timeout_text_never_panics(text in ".{0,12}") {
            let _ = parse(&text);
        }
    }
}
