//! Client tokens: repeating a call returns the same volume.

use crate::time::Millis;
use crate::wire::{ApiResult, refuse};
use serde::Serialize;

/// The use of a token. A token stays used when creation fails later or the volume is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TokenUse {
    pub volume: String,
    /// The parameters, in a form that depends neither on the order of tags nor on how the request
    /// named the zone.
    pub(crate) fingerprint: String,
    pub at: Millis,
}

/// The maximum length of a token, in characters.
pub(crate) const MAX_LENGTH: usize = 64;

/// How long a token is remembered, in milliseconds.
const RETENTION_MS: u64 = 12 * 3600 * 1000;

/// Checks a request's token. Returns the volume of the earlier request that this one repeats;
/// `None`: the token is new or forgotten. `is_deleted`: whether a volume was deleted or has failed.
pub(crate) fn find_replayed<'a>(
    token: &str,
    used: Option<&'a TokenUse>,
    fingerprint: &str,
    is_deleted: impl Fn(&str) -> bool,
    now: Millis,
) -> ApiResult<Option<&'a str>> {
    let Some(used) = used.filter(|s| now.since(s.at) < RETENTION_MS) else { return Ok(None) };
    if is_deleted(&used.volume) {
        refuse!(
            "IdempotentParameterMismatch",
            "The client token '{token}' is associated with resource '{}' which has already been deleted. Please use a different client token.",
            used.volume
        );
    }
    if used.fingerprint != fingerprint {
        refuse!(
            "IdempotentParameterMismatch",
            "Parameters on this idempotent request are inconsistent with parameters used in previous request(s)."
        );
    }
    Ok(Some(&used.volume))
}
