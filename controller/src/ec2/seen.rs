//! What one fresh look at EC2 says about one resource.

use super::error::Ec2Error;

/// Three answers, never two: that a look failed says nothing about the resource.
#[derive(Clone, Debug)]
pub enum Seen<T> {
    /// EC2 showed it.
    Present(T),
    /// A complete answer of EC2 did not hold it. A resource made seconds ago may be absent for a while: reads lag behind writes.
    Absent,
    /// No complete answer came.
    Unknown(Ec2Error),
}

impl<T> Seen<T> {
    /// The resource, when it was shown.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// `Some` when shown, `None` when absent.
    ///
    /// # Errors
    /// Why nothing is known.
    pub fn known(self) -> Result<Option<T>, Ec2Error> {
        match self {
            Self::Present(value) => Ok(Some(value)),
            Self::Absent => Ok(None),
            Self::Unknown(error) => Err(error),
        }
    }
}
