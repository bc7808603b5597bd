//! Availability zones.

use serde::{Deserialize, Serialize};

/// A zone as one account sees it: names differ between accounts, ids do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// `us-east-1a`.
    pub name: String,
    /// `use1-az6`.
    pub id: String,
    /// `available`, `information`, `impaired`, `constrained` or `unavailable`. Of these, only `unavailable` has consequences.
    #[serde(default = "available")]
    pub state: String,
}

fn available() -> String {
    "available".to_owned()
}

/// Refuses a state that zones do not have.
///
/// # Errors
/// The state, and those that there are.
pub(crate) fn check_zone_state(state: &str) -> Result<(), String> {
    const STATES: [&str; 5] = [
        "available",
        "information",
        "impaired",
        "constrained",
        "unavailable",
    ];
    if STATES.contains(&state) {
        return Ok(());
    }
    Err(format!(
        "a zone's state must be one of {STATES:?}, not {state:?}"
    ))
}
