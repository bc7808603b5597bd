//! The result of one look at one resource in EC2.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Ec2Error;

/// About how long EC2's reads lag behind writes.
pub const READ_LAG: Duration = Duration::from_secs(2);

/// The result of a look, and when the call to EC2 began that gave it. Reads lag behind writes, so
/// the result may show a state from before that time.
#[derive(Clone, Debug)]
pub struct DatedLook<T> {
    /// When the call began.
    pub began: Instant,
    /// What the call showed.
    pub result: LookResult<T>,
}

/// A look has three results, never two: a failed look says nothing about the resource.
#[derive(Clone, Debug)]
pub enum LookResult<T> {
    /// EC2 showed the resource.
    Present(T),
    /// A complete answer of EC2 did not hold the resource. A resource that was created seconds ago
    /// may be absent for a while, because reads lag behind writes.
    Absent,
    /// No complete answer came.
    Unknown(Ec2Error),
}

impl<T> LookResult<T> {
    /// Returns the resource, when it was shown.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// Returns `Some` when the resource was shown and `None` when it is absent.
    ///
    /// # Errors
    /// The reason why nothing is known.
    pub fn known(self) -> Result<Option<T>, Ec2Error> {
        match self {
            Self::Present(value) => Ok(Some(value)),
            Self::Absent => Ok(None),
            Self::Unknown(error) => Err(error),
        }
    }
}
