//! Role sessions. The session token itself contains the session.

use crate::random::Random;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The contents of a session token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The role's ARN.
    pub role: String,
    /// `RoleSessionName`.
    pub name: String,
    /// The role's id, such as `AROA…`.
    pub role_id: String,
    /// The access key of the session.
    pub access_key: String,
    /// The session tags.
    pub tags: BTreeMap<String, String>,
    /// The time at which the session was issued.
    pub issued: Millis,
    /// The time at which the session expires.
    pub until: Millis,
}

impl Session {
    /// Returns the session token.
    pub fn seal(&self, seed: u64) -> String {
        // JSON can represent every value of the type.
        let json = serde_json::to_string(self).unwrap_or_default();
        let mut out = check(seed, &json);
        for b in json.bytes() {
            let _ = write!(out, "{b:02x}");
        }
        out
    }

    /// Reads a token. Returns `None` for a token that this simulator did not issue.
    pub fn open(seed: u64, token: &str) -> Option<Self> {
        let (sum, body) = token.split_at_checked(16)?;
        let json = unhex(body)?;
        (check(seed, &json) == sum)
            .then(|| serde_json::from_str(&json).ok())
            .flatten()
    }
}

fn check(seed: u64, text: &str) -> String {
    Random::new(seed, text).hex(16)
}

/// Decodes hexadecimal digits into text.
pub(super) fn unhex(digits: &str) -> Option<String> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let bytes: Option<Vec<u8>> = (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).ok())
        .collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_token_opens_only_on_issuing_simulator() {
        let s = Session {
            role: "arn:aws:iam::111122223333:role/r".to_owned(),
            name: "s".to_owned(),
            role_id: "AROA1".to_owned(),
            access_key: "ASIA1".to_owned(),
            tags: BTreeMap::from([("k".to_owned(), "ü".to_owned())]),
            issued: Millis(1),
            until: Millis(2),
        };
        let token = s.seal(7);
        assert_eq!(Session::open(7, &token), Some(s));
        assert_eq!(Session::open(8, &token), None);
        assert_eq!(Session::open(7, &token.replace('a', "b")), None);
        for nonsense in [
            "",
            "x",
            "ü234567890123456",
            "0123456789abcdefzz",
            "0123456789abcdef0",
        ] {
            assert_eq!(Session::open(7, nonsense), None, "{nonsense}");
        }
    }
}
