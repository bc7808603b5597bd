//! The first messages of a connection: which versions both sides speak, and the proof that they
//! have the same key.

use std::fmt;

use crate::codec::{Wire, message, values};
use crate::{Malformed, pb};

/// Bytes in a nonce and in a proof.
pub(crate) const BYTES: usize = 32;

/// The versions of the protocol that the caller speaks, both inclusive and `oldest <= newest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version.
    pub oldest: u32,
    /// The newest version.
    pub newest: u32,
    /// The caller's part in the proof of a key.
    pub key: KeyStep,
}

impl Hello {
    /// The versions that this release speaks over a unix socket.
    pub const OURS: Self =
        Self { oldest: crate::PROTOCOL_OLDEST, newest: crate::PROTOCOL_NEWEST, key: KeyStep::None };

    /// Returns the Hello of the version in which both sides prove a key.
    pub const fn with_key(step: KeyStep) -> Self {
        Self { oldest: crate::PROTOCOL_WITH_KEY, newest: crate::PROTOCOL_WITH_KEY, key: step }
    }

    /// Returns the newest version that both sides speak.
    pub fn common(self, other: Self) -> Option<u32> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl Wire for Hello {
    type Pb = pb::Hello;

    fn read(wire: pb::Hello) -> Result<Self, Malformed> {
        if wire.oldest == 0 || wire.newest < wire.oldest {
            return Err(Malformed::Invalid { field: "hello" });
        }
        let key = match (wire.nonce.is_empty(), wire.proof.is_empty()) {
            (true, true) => KeyStep::None,
            (false, true) => KeyStep::Nonce(Nonce::read(wire.nonce)?),
            (true, false) => KeyStep::Proof(Proof::read(wire.proof)?),
            (false, false) => return Err(Malformed::Invalid { field: "hello" }),
        };
        Ok(Self { oldest: wire.oldest, newest: wire.newest, key })
    }

    fn write(&self) -> pb::Hello {
        let (nonce, proof) = match self.key {
            KeyStep::None => (Vec::new(), Vec::new()),
            KeyStep::Nonce(nonce) => (nonce.write(), Vec::new()),
            KeyStep::Proof(proof) => (Vec::new(), proof.write()),
        };
        pb::Hello { oldest: self.oldest, newest: self.newest, nonce, proof }
    }
}

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
        nonce: Nonce = nonce,
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

fn exact_bytes(bytes: &[u8], field: &'static str) -> Result<[u8; BYTES], Malformed> {
    bytes.try_into().map_err(|_| Malformed::Invalid { field })
}
