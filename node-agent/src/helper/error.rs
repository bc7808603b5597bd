//! Why a request to the helper has no result.

use std::borrow::Cow;
use std::io;

use ebs_csi_wire::{Failed, Refused};

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// No process listens.
    #[error("the mount-helper does not listen at {address}")]
    Down {
        /// The helper's address.
        address: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The connection ended before an answer: the helper was restarted or died.
    #[error("the mount-helper ended before it answered")]
    Lost(#[source] io::Error),
    /// The helper neither answered nor reported that the work continues.
    #[error("the mount-helper does not answer")]
    Silent,
    /// An answer that no helper of this protocol sends.
    #[error("the mount-helper answered with {0}")]
    Foreign(Cow<'static, str>),
    /// The program at the address does not have this process's key.
    #[error("the program at the mount-helper's address does not have the key")]
    Unproved,
    /// All connections were in use until the deadline.
    #[error("too many requests wait for the mount-helper")]
    Crowded,
    /// The policy or the facts forbid the request.
    #[error("refused")]
    Refused(Refused),
    /// A step failed.
    #[error("failed")]
    Failed(Failed),
    /// The work continues; a repeated request joins it.
    #[error("still running")]
    Pending,
}

impl HelperError {
    /// Returns a label for metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Down { .. } => "down",
            Self::Lost(_) => "lost",
            Self::Silent => "silent",
            Self::Foreign(_) => "foreign",
            Self::Unproved => "unproved",
            Self::Crowded => "crowded",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Pending => "pending",
        }
    }
}
