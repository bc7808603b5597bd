//! The caller and the Region, from the credential scope of the signature, and the time of the
//! request. The signature itself is not verified, because that needs the secret key.

use super::{ApiError, ApiResult, refuse};
use crate::time::Millis;

/// How far the time of a request may be from EC2's time, in either direction, in milliseconds.
const WINDOW_MS: u64 = 5 * 60 * 1000;

/// The credential scope of an AWS signature, version 4: `KEY/20260925/us-east-1/ec2/aws4_request`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Credential {
    /// The access key id. A request never carries the secret key.
    pub(crate) access_key: String,
    pub region: String,
    /// The service in the scope: `ec2` or `sts`.
    pub service: String,
}

impl Credential {
    pub(crate) fn parse(authorization: &str) -> Option<Self> {
        let scope = authorization.split_once("Credential=")?.1.split([',', ' ']).next()?;
        let mut parts = scope.split('/');
        let access_key = parts.next()?.to_owned();
        let _date = parts.next()?;
        let region = parts.next()?.to_owned();
        let service = parts.next()?.to_owned();
        (!access_key.is_empty()).then_some(Self { access_key, region, service })
    }
}

/// Checks `X-Amz-Date`, the time of a request, of the form `20260101T000000Z`.
pub(crate) fn check_time(date: &str, now: Millis) -> ApiResult<()> {
    let Some(time) = time_of(date) else {
        refuse!(
            "IncompleteSignature",
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header, of the form 20260101T000000Z"
        );
    };
    if now.since(time).max(time.since(now)) > WINDOW_MS {
        return Err(ApiError::expired_credentials());
    }
    Ok(())
}

fn time_of(date: &str) -> Option<Millis> {
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", date).ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Millis(time.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_time_is_within_5_minutes() {
        let now = Millis::parse("2026-01-01T12:00:00Z").expect("a time");
        for (date, code) in [
            ("20260101T115501Z", None),
            ("20260101T120459Z", None),
            ("20260101T115459Z", Some("RequestExpired")),
            ("20260101T120501Z", Some("RequestExpired")),
            ("", Some("IncompleteSignature")),
            ("yesterday", Some("IncompleteSignature")),
            ("2026-01-01T12:00:00Z", Some("IncompleteSignature")),
            ("20260101T1200", Some("IncompleteSignature")),
        ] {
            let refused = check_time(date, now).err().map(|error| error.code);
            assert_eq!(refused.as_deref(), code, "{date}");
        }
    }

    #[test]
    fn scope_parses_from_signature_else_none() {
        let header = "AWS4-HMAC-SHA256 Credential=AKID/20260925/eu-west-1/ec2/aws4_request, SignedHeaders=host, Signature=00";
        let c = Credential::parse(header).expect("header");
        assert_eq!(
            (c.access_key.as_str(), c.region.as_str(), c.service.as_str()),
            ("AKID", "eu-west-1", "ec2")
        );
        assert_eq!(Credential::parse("Bearer x"), None);
        assert_eq!(Credential::parse("Credential=//"), None);
    }
}
