//! Client tokens: what makes a repeated create the same create, for EC2 and across an upgrade from the Go driver.

use std::fmt;

use sha2::{Digest, Sha256};

/// A client token for CreateVolume or CopyVolumes: 64 lower-case hexadecimal digits (EC2's limit is 64 characters).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientToken(String);

impl ClientToken {
    /// The token of the `attempt`-th create under this volume name.
    ///
    /// The first attempt hashes the name, later ones `name-2`, `name-3` …, as the Go driver does: a create that it left half
    /// finished is continued, not doubled.
    pub fn of(name: &str, attempt: Attempt) -> Self {
        let digest = match attempt.0 {
            0 | 1 => Sha256::digest(name),
            n => Sha256::digest(format!("{name}-{n}")),
        };
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// As EC2 is given it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which create under one name: an asynchronous failure spends a token for hours, and the next number steps over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt(u32);

impl Attempt {
    /// Where every name begins.
    pub const FIRST: Self = Self(1);
    /// Tokens that one RPC steps over before it answers; the next RPC goes on where it ended.
    pub const STEPS: u32 = 12;

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
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
    fn tokens_are_the_ones_that_the_go_driver_sends() {
        let second = Attempt::FIRST.next();
        for (attempt, token) in [
            (
                Attempt::FIRST,
                "a0c428246c73d0353af51551b47726e4b434656a2d5c93ab1f83d0928ee0a8ef",
            ),
            (
                second,
                "559c18fe6459004b14980e7ccebb280e759977f7c374c1956a9c9aa925f8d358",
            ),
        ] {
            assert_eq!(ClientToken::of("pvc-0001", attempt).as_str(), token);
        }
    }

    #[test]
    fn no_attempt_has_the_token_of_another() {
        let mut attempt = Attempt::FIRST;
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            assert!(seen.insert(ClientToken::of("n", attempt).as_str().to_owned()));
            attempt = attempt.next();
        }
    }
}
