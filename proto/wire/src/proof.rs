//! The messages by which both sides of a connection prove that they have the same key.

use std::fmt;

use crate::Malformed;
use crate::codec::{message, values};

/// Bytes in a nonce and in a proof.
pub(crate) const BYTES: usize = 32;

/// A random number that one side chooses for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; BYTES]);

/// The evidence that a side has the key: HMAC-SHA256 (RFC 2104) over what both sides said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Proof(pub [u8; BYTES]);

/// The caller's part in a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStep {
    /// The kernel names the caller: there is nothing to prove.
    None,
    /// The first Hello of a connection whose sides prove a key.
    Nonce(Nonce),
    /// The second one.
    Proof(Proof),
}

message! {
    /// The helper's answer to [`KeyStep::Nonce`]. The helper proves first, so that an agent tells
    /// nothing to a program that took the helper's port.
    #[derive(Copy)]
    Challenge {
        /// The helper's nonce.
        nonce: Nonce = nonce,
        /// The helper's proof.
        proof: Proof = proof,
    }
}

values! {
    Nonce, Vec<u8>: |wire| Self(exact_bytes(&wire, "nonce")?), |value| value.0.to_vec();
    Proof, Vec<u8>: |wire| Self(exact_bytes(&wire, "proof")?), |value| value.0.to_vec();
}

// A proof in a log helps nobody, and could be compared in a time that depends on its bytes.
impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(..)")
    }
}

impl KeyStep {
    pub(crate) fn from_wire(nonce: &[u8], proof: &[u8]) -> Result<Self, Malformed> {
        match (nonce, proof) {
            ([], []) => Ok(Self::None),
            (nonce, []) => Ok(Self::Nonce(Nonce(exact_bytes(nonce, "nonce")?))),
            ([], proof) => Ok(Self::Proof(Proof(exact_bytes(proof, "proof")?))),
            _ => Err(Malformed::Invalid { field: "hello" }),
        }
    }

    pub(crate) fn to_wire(self) -> (Vec<u8>, Vec<u8>) {
        match self {
            Self::None => (Vec::new(), Vec::new()),
            Self::Nonce(nonce) => (nonce.0.to_vec(), Vec::new()),
            Self::Proof(proof) => (Vec::new(), proof.0.to_vec()),
        }
    }
}

fn exact_bytes(bytes: &[u8], field: &'static str) -> Result<[u8; BYTES], Malformed> {
    bytes.try_into().map_err(|_| Malformed::Invalid { field })
}
