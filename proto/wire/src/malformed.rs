//! Why a message could not be decoded.

use std::fmt;

use crate::closed::UnknownNumber;
use crate::ids::IdError;
use crate::mount::MountWordError;
use crate::path::PathError;

/// A message that no correct peer sends. The receiver closes the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes are not the protobuf message.
    NotProtobuf,
    /// A required field is missing.
    Missing {
        /// The field, as in `helper.proto`.
        field: &'static str,
    },
    /// A number that the protocol does not define.
    UnknownValue {
        /// The field, as in `helper.proto`.
        field: &'static str,
        /// The number.
        number: i32,
    },
    /// A list or a text longer than the protocol allows.
    TooLong {
        /// The field, as in `helper.proto`.
        field: &'static str,
        /// The number of entries or bytes.
        given: usize,
        /// The allowed number.
        limit: usize,
    },
    /// A value outside its range or of the wrong form.
    Invalid {
        /// The field, as in `helper.proto`.
        field: &'static str,
    },
    /// An identifier of the wrong form.
    Id(IdError),
    /// A path of the wrong form.
    Path(PathError),
    /// A mount flag or file system of the wrong form.
    MountWord(MountWordError),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotProtobuf => f.write_str("not a message of the helper's protocol"),
            Self::Missing { field } => write!(f, "{field} is missing"),
            Self::UnknownValue { field, number } => {
                write!(f, "{field} has the value {number}, which this protocol does not define")
            }
            Self::TooLong { field, given, limit } => {
                write!(f, "{field} is {given} long, the limit is {limit}")
            }
            Self::Invalid { field } => write!(f, "{field} is out of range"),
            Self::Id(_) => f.write_str("an identifier has the wrong shape"),
            Self::Path(_) => f.write_str("a path has the wrong shape"),
            Self::MountWord(_) => f.write_str("a mount option has the wrong shape"),
        }
    }
}

impl std::error::Error for Malformed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Id(error) => Some(error),
            Self::Path(error) => Some(error),
            Self::MountWord(error) => Some(error),
            _ => None,
        }
    }
}

impl From<UnknownNumber> for Malformed {
    fn from(unknown: UnknownNumber) -> Self {
        let UnknownNumber { field, number } = unknown;
        Self::UnknownValue { field, number }
    }
}

macro_rules! from_errors {
    ($($error:ident => $variant:ident,)+) => {
        $(impl From<$error> for Malformed {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })+
    };
}

from_errors! {
    IdError => Id,
    PathError => Path,
    MountWordError => MountWord,
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
