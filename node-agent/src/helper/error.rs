//! What can come of a question instead of its result.

use std::io;

use ebs_csi_wire::{Failed, Refused};

/// Why a question has no result.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// Nobody listens.
    #[error("the mount-helper does not listen at {address}")]
    Down {
        /// Where it should.
        address: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The connection ended before an answer: the helper was restarted or died.
    #[error("the mount-helper ended before it answered")]
    Lost(#[source] io::Error),
    /// It neither answered nor said that the work goes on.
    #[error("the mount-helper does not answer")]
    Silent,
    /// Something that no helper of this protocol sends.
    #[error("the mount-helper answered with {0}")]
    Foreign(&'static str),
    /// All connections were in use for the whole time.
    #[error("too many requests wait for the mount-helper")]
    Crowded,
    /// The policy or the facts forbid it.
    #[error("refused")]
    Refused(Refused),
    /// A step did not work.
    #[error("failed")]
    Failed(Failed),
    /// The work goes on; the same question joins it.
    #[error("still running")]
    Pending,
}

impl HelperError {
    /// A word for metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Down { .. } => "down",
            Self::Lost(_) => "lost",
            Self::Silent => "silent",
            Self::Foreign(_) => "foreign",
            Self::Crowded => "crowded",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Pending => "pending",
        }
    }
}
