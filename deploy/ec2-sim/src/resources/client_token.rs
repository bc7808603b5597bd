//! Client tokens: the same call again gives the same volume.

use crate::error::{ApiError, ApiResult};
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// What a token was used for. A token stays spent when creation fails later or the volume is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// The volume it made.
    pub volume: String,
    /// The parameters, in a form that does not depend on the order of tags or on how the zone was named.
    pub fingerprint: String,
    /// When it was used.
    pub at: Millis,
    /// The volume was deleted since.
    pub deleted: bool,
}

/// What a token means for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Not seen, or forgotten: go on.
    Fresh,
    /// The same request before: answer with that volume.
    Replay(&'a str),
}

/// The longest token.
pub const MAX_LENGTH: usize = 64;

/// Judges a request's token.
///
/// # Errors
/// `IdempotentParameterMismatch` in its two wordings.
pub fn judge<'a>(
    token: &str,
    spent: Option<&'a Spent>,
    fingerprint: &str,
    now: Millis,
    retention_ms: u64,
) -> ApiResult<Verdict<'a>> {
    let Some(spent) = spent.filter(|s| now.since(s.at) < retention_ms) else {
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
        let mut spent = Spent {
            volume: "vol-1".to_owned(),
            fingerprint: "a".to_owned(),
            at: Millis(0),
            deleted: false,
        };
        assert_eq!(judge("t", None, "a", Millis(1), 100), Ok(Verdict::Fresh));
        assert_eq!(
            judge("t", Some(&spent), "a", Millis(1), 100),
            Ok(Verdict::Replay("vol-1"))
        );
        assert!(
            judge("t", Some(&spent), "b", Millis(1), 100)
                .expect_err("other")
                .message
                .starts_with("Parameters on this")
        );
        spent.deleted = true;
        assert!(
            judge("t", Some(&spent), "a", Millis(1), 100)
                .expect_err("burnt")
                .message
                .contains("'vol-1' which has already been deleted")
        );
        assert_eq!(
            judge("t", Some(&spent), "a", Millis(100), 100),
            Ok(Verdict::Fresh)
        );
    }
}
