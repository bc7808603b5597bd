//! Availability zones.

use serde::{Deserialize, Serialize};

/// A zone as one account sees it. Names differ between accounts; ids do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// The name, such as `us-east-1a`.
    pub name: String,
    /// The id, such as `use1-az6`.
    pub id: String,
    /// `available`, `information`, `impaired`, `constrained` or `unavailable`. Only `unavailable`
    /// has an effect.
    #[serde(default = "available")]
    pub state: String,
}

fn available() -> String {
    "available".to_owned()
}

/// Checks that a zone can have this state.
///
/// # Errors
/// Names the state and the permitted ones.
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
