//! The form of an AWS signature, version 4, and its time. The signature is not verified, because
//! that needs the secret key.

use super::api_error::{ApiError, ApiResult};
use crate::time::Millis;

/// How far the time of a request may be from EC2's time, in either direction, in milliseconds.
const WINDOW_MS: u64 = 5 * 60 * 1000;

/// Checks an `Authorization` header and the time of the request.
///
/// # Errors
/// `IncompleteSignature`, wording unverified; `RequestExpired`.
pub(crate) fn check(authorization: &str, date: &str, now: Millis) -> ApiResult<()> {
    let time =
        parse(authorization, date).map_err(|what| ApiError::client("IncompleteSignature", what))?;
    if now.since(time).max(time.since(now)) > WINDOW_MS {
        return Err(ApiError::expired_credentials());
    }
    Ok(())
}

/// Returns the time of the request, or the problem with its signature.
fn parse(authorization: &str, date: &str) -> Result<Millis, String> {
    let rest = authorization
        .strip_prefix("AWS4-HMAC-SHA256 ")
        .ok_or("Authorization header requires the algorithm AWS4-HMAC-SHA256")?;
    let part = |name: &str| {
        rest.split(',')
            .find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
            .ok_or_else(|| format!("Authorization header requires '{name}' parameter"))
    };
    let scope: Vec<&str> = part("Credential")?.split('/').collect();
    let [_, day, _, _, "aws4_request"] = scope[..] else {
        return Err("Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term".to_owned());
    };
    let time = time_of(date).ok_or("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header, of the form 20260101T000000Z")?;
    if !date.starts_with(day) {
        return Err(format!(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{day}' != '{date}'"
        ));
    }
    let headers = part("SignedHeaders")?;
    for needed in ["host", "x-amz-date"] {
        if !headers.split(';').any(|header| header == needed) {
            return Err(format!("'{needed}' must be a SignedHeader"));
        }
    }
    let signature = part("Signature")?;
    let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    if signature.len() != 64 || !signature.bytes().all(hex) {
        return Err("Signature must be 64 hexadecimal digits".to_owned());
    }
    Ok(time)
}

/// Parses a time of the form `20260101T000000Z`.
fn time_of(date: &str) -> Option<Millis> {
    let cut = |from: usize, to: usize| date.get(from..to);
    Millis::parse(&format!(
        "{}-{}-{}T{}:{}:{}",
        cut(0, 4)?,
        cut(4, 6)?,
        cut(6, 8)?,
        cut(9, 11)?,
        cut(11, 13)?,
        date.get(13..)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time may be up to 5 minutes off.
    #[test]
    fn signature_needs_all_parts_and_current_time() {
        let now = Millis::parse("2026-01-01T12:00:00Z").expect("a time");
        let good = format!(
            "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/ec2/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature={}",
            "0a".repeat(32)
        );
        let check_at = |authorization: &str, date: &str| {
            check(authorization, date, now).map_err(|error| error.code)
        };
        let date = "20260101T120000Z";
        assert_eq!(check_at(&good, date), Ok(()));
        for (from, to) in [
            ("AWS4-HMAC-SHA256", "AWS3"),
            ("Credential=AKID/", "Credential="),
            ("aws4_request", "aws3_request"),
            ("20260101/", "20260102/"),
            ("host;", ""),
            (";x-amz-date", ""),
            (", SignedHeaders=content-type;host;x-amz-date", ""),
            ("Signature=0a", "Signature=0A"),
            ("Signature=0a", "Signature="),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good, "{from}");
            assert_eq!(
                check_at(&bad, date),
                Err("IncompleteSignature".to_owned()),
                "{from} -> {to}"
            );
        }
        for nonsense in ["", "yesterday", "2026-01-01T12:00:00Z", "20260101T1200"] {
            assert_eq!(
                check_at(&good, nonsense),
                Err("IncompleteSignature".to_owned()),
                "{nonsense}"
            );
        }
        for (date, old) in [
            ("20260101T115501Z", false),
            ("20260101T120459Z", false),
            ("20260101T115459Z", true),
            ("20260101T120501Z", true),
        ] {
            let judged = check_at(&good, date);
            assert_eq!(judged.is_err(), old, "{date}: {judged:?}");
        }
    }
}
