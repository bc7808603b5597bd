//! What the kernel holds for a process as a whole: the rows of `process.toml`.

use super::Profile;
use crate::Value;

/// Bits of securebits, of which capabilities(7) tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecureBits {
    /// The bits that are set.
    pub bits: &'static [Value],
    /// The reason.
    pub why: &'static str,
}

/// How much of Landlock the rules of the profiles speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LandlockHandled {
    /// Every right up to this ABI is denied unless a row grants it.
    pub abi: u8,
    /// The reason.
    pub why: &'static str,
}

/// Whose namespaces a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Its own or its supervisor's, and not the node's.
    NotWithNode,
    /// The node's.
    WithNode,
    /// The supervisor's, whosever they are.
    WithSupervisor,
}

/// A row about namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceRow {
    /// The names of the profiles.
    pub profiles: &'static [&'static str],
    /// The kinds as in `/proc/PID/ns`, each with the flag of unshare(2) that makes one.
    pub kinds: &'static [Value],
    /// Whose they are.
    pub share: Share,
    /// The reason.
    pub why: &'static str,
}

mod compiled {
    use super::{LandlockHandled, NamespaceRow, SecureBits, Share, Value};
    include!(concat!(env!("OUT_DIR"), "/process.rs"));
}

/// The Landlock ABI of the profiles' rules.
pub const LANDLOCK: LandlockHandled = compiled::LANDLOCK;
/// The securebits of each process that starts with a capability.
pub const SECURE_BITS: &[SecureBits] = compiled::SECURE_BITS;
/// Every row about namespaces.
pub const NAMESPACES: &[NamespaceRow] = compiled::NAMESPACES;

/// Returns all bits of [`SECURE_BITS`].
#[must_use]
pub fn secure_bits() -> u64 {
    SECURE_BITS.iter().flat_map(|row| row.bits).fold(0, |all, bit| all | bit.number)
}

impl Profile {
    /// Returns the rows about the namespaces of the process; a namespace without one is whatever
    /// the process was started in.
    pub fn namespaces(&self) -> impl Iterator<Item = &'static NamespaceRow> {
        NAMESPACES.iter().filter(|row| row.profiles.contains(&self.name))
    }

    /// Returns the flags of unshare(2) for the namespaces that are not the node's.
    #[must_use]
    pub fn unshared(&self) -> u64 {
        let own = self.namespaces().filter(|row| row.share == Share::NotWithNode);
        own.flat_map(|row| row.kinds).fold(0, |all, kind| all | kind.number)
    }
}
