//! Client tokens: repeating a call returns the same volume.

use crate::time::Millis;
use crate::wire::api_error::{ApiError, ApiResult};
use serde::Serialize;

/// The use of a token. A token stays used when creation fails later or the volume is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenUse {
    /// The id of the created volume.
    pub volume: String,
    /// The parameters, in a form that depends neither on the order of tags nor on how the request
    /// named the zone.
    pub fingerprint: String,
    /// The time at which the token was used.
    pub at: Millis,
    /// Whether the volume was deleted since.
    pub deleted: bool,
}

/// The consequence of a token for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// The token is new or forgotten: the request continues.
    Fresh,
    /// The request is a repetition: the reply shows the same volume.
    Replay(&'a str),
}

/// The maximum length of a token, in characters.
pub(crate) const MAX_LENGTH: usize = 64;

/// How long a token is remembered, in milliseconds.
const RETENTION_MS: u64 = 12 * 3600 * 1000;

/// Checks a request's token.
///
/// # Errors
/// `IdempotentParameterMismatch` in its two wordings.
pub(crate) fn judge<'a>(
    token: &str,
    spent: Option<&'a TokenUse>,
    fingerprint: &str,
    now: Millis,
) -> ApiResult<Verdict<'a>> {
    let Some(spent) = spent.filter(|s| now.since(s.at) < RETENTION_MS) else {
        return Ok(Verdict::Fresh);
    };
    if spent.deleted {
        return Err(ApiError::client(
            "IdempotentParameterMismatch",
            format!(
                "The client token '{token}' is associated with resource '{}' which has already been deleted. Please use a different client token.",
                spent.volume
            ),
        ));
    }
    if spent.fingerprint != fingerprint {
        return Err(ApiError::client(
            "IdempotentParameterMismatch",
            "Parameters on this idempotent request are inconsistent with parameters used in previous request(s).",
        ));
    }
    Ok(Verdict::Replay(&spent.volume))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token whose volume was deleted is refused too.
    #[test]
    fn client_token_replays_refuses_mismatch_and_expires() {
        let mut spent = TokenUse {
            volume: "vol-1".to_owned(),
            fingerprint: "a".to_owned(),
            at: Millis(0),
            deleted: false,
        };
        assert_eq!(judge("t", None, "a", Millis(1)), Ok(Verdict::Fresh));
        assert_eq!(
            judge("t", Some(&spent), "a", Millis(1)),
            Ok(Verdict::Replay("vol-1"))
        );
        assert!(
            judge("t", Some(&spent), "b", Millis(1))
                .expect_err("other")
                .message
                .starts_with("Parameters on this")
        );
        spent.deleted = true;
        assert!(
            judge("t", Some(&spent), "a", Millis(1))
                .expect_err("burnt")
                .message
                .contains("'vol-1' which has already been deleted")
        );
        assert_eq!(
            judge("t", Some(&spent), "a", Millis(43_200_000)),
            Ok(Verdict::Fresh)
        );
    }
}
