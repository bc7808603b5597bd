//! Bugs that drivers have had, switched on by tests to prove that the seeded histories find them.
//!
//! Only code that builds the library's [`crate::Settings`] can name one. No flag and no
//! environment variable reaches the field, and the process (`process.rs`) leaves it empty. It is a
//! value instead of a feature of the crate, because a feature would build the driver a second time,
//! and the tested driver would not be the shipped one.

/// One known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBug {
    /// After EC2 refuses a client token, uses the next one without a look for the volume that was
    /// made with the refused one.
    TokenBumpWithoutAdoption,
    /// Takes a snapshot without a look for the one that an earlier request of the name took.
    SnapshotWithoutLookUp,
    /// Fails the answer for all volumes of a call when one of them does not exist.
    BatchErrorToAll,
}
