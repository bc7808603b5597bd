//! Client tokens, by which EC2 recognises a repeated create, also across an upgrade from the Go
//! driver.

use std::fmt;

use sha2::{Digest, Sha256};

/// A client token for CreateVolume or CopyVolumes: 64 lower-case hexadecimal digits (EC2's limit is
/// 64 characters).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientToken(String);

impl ClientToken {
    /// Returns the token of the `attempt`-th create under this volume name.
    ///
    /// The first attempt hashes the name, later ones `name-2`, `name-3` …, as the Go driver does. A
    /// create that the Go driver left unfinished is therefore continued, not repeated.
    pub(crate) fn of(name: &str, attempt: Attempt) -> Self {
        let digest = match attempt.0 {
            0 | 1 => Sha256::digest(name),
            n => Sha256::digest(format!("{name}-{n}")),
        };
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of a create under one name. An asynchronous failure uses up a token for hours; the
/// next number has a new token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt(u32);

impl Attempt {
    /// The first attempt of every name.
    pub(crate) const FIRST: Self = Self(1);
    /// The most used-up tokens that one RPC tries before it answers; the next RPC continues after
    /// them.
    pub(crate) const MAX_PER_CALL: u32 = 12;

    #[must_use]
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_tokens_match_go_driver() {
        let second = Attempt::FIRST.next();
        for (attempt, token) in [
            (Attempt::FIRST, "a0c428246c73d0353af51551b47726e4b434656a2d5c93ab1f83d0928ee0a8ef"),
            (second, "559c18fe6459004b14980e7ccebb280e759977f7c374c1956a9c9aa925f8d358"),
        ] {
            assert_eq!(ClientToken::of("pvc-0001", attempt).as_str(), token);
        }
    }

    #[test]
    fn first_100_attempts_have_unique_client_tokens() {
        let mut attempt = Attempt::FIRST;
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            assert!(seen.insert(ClientToken::of("n", attempt).as_str().to_owned()));
            attempt = attempt.next();
        }
    }
}
