//! Why a message could not be decoded.

use crate::closed::UnknownNumber;
use crate::ids::IdError;
use crate::mount::MountWordError;
use crate::path::PathError;

/// A message that no correct peer sends. The receiver closes the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are not the protobuf message.
    #[error("not a message of the helper's protocol")]
    NotProtobuf,
    /// A required field is missing.
    #[error("{field} is missing")]
    Missing {
        /// The field, as in `helper.proto`.
        field: &'static str,
    },
    /// A number that the protocol does not define.
    #[error("{field} has the value {number}, which this protocol does not define")]
    UnknownValue {
        /// The field, as in `helper.proto`.
        field: &'static str,
        /// The number.
        number: i32,
    },
    /// A list or a text longer than the protocol allows.
    #[error("{field} is {given} long, the limit is {limit}")]
    TooLong {
        /// The field, as in `helper.proto`.
        field: &'static str,
        /// The number of entries or bytes.
        given: usize,
        /// The allowed number.
        limit: usize,
    },
    /// A value outside its range or of the wrong form.
    #[error("{field} is out of range")]
    Invalid {
        /// The field, as in `helper.proto`.
        field: &'static str,
    },
    /// An identifier of the wrong form.
    #[error("an identifier has the wrong shape")]
    Id(#[from] IdError),
    /// A path of the wrong form.
    #[error("a path has the wrong shape")]
    Path(#[from] PathError),
    /// A mount flag or file system of the wrong form.
    #[error("a mount option has the wrong shape")]
    MountWord(#[from] MountWordError),
}

impl From<UnknownNumber> for Malformed {
    fn from(unknown: UnknownNumber) -> Self {
        let UnknownNumber { field, number } = unknown;
        Self::UnknownValue { field, number }
    }
}

/// Returns the sub-message, or an error that names the missing one.
pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, Malformed> {
    value.ok_or(Malformed::Missing { field })
}

/// Checks that a list or a text is no longer than `limit`.
pub(crate) fn bounded(given: usize, limit: usize, field: &'static str) -> Result<(), Malformed> {
    if given > limit {
        return Err(Malformed::TooLong { field, given, limit });
    }
    Ok(())
}
