//! Mistakes that drivers have made, to be put in by the tests that prove that the seeded histories find them.
//!
//! Only who builds the library's [`crate::ec2::Settings`] by hand can name one. No flag and no environment variable reaches the field, and the process
//! (`process.rs`) leaves it empty. It is a value and not a feature of the crate because a feature would build the driver a second time, and what is tested would not be what is shipped.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBug {
    /// A client token that EC2 refuses is stepped over without a look for the volume that was made with it.
    TokenBumpWithoutAdoption,
    /// A snapshot is taken without a look for the one that an earlier request of the name took.
    SnapshotWithoutLookUp,
    /// One volume that does not exist fails the answer for all that were asked for in the same call.
    BatchErrorToAll,
}
