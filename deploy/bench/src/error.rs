//! Why something could not be measured.

use ebs_csi_sandbox::{CoError, WorldError};

/// Why a measurement ended.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The driver refused what it must do.
    #[error(transparent)]
    Co(#[from] CoError),
    /// The world broke.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A look at the machine or the simulator failed.
    #[error("{0}")]
    Look(#[from] std::io::Error),
    /// A call ended with a code that is not expected here.
    #[error("{rpc} ended with {code:?}: {message}")]
    Call {
        /// Name of the RPC.
        rpc: &'static str,
        /// gRPC code.
        code: tonic::Code,
        /// The driver's words.
        message: String,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl BenchError {
    /// Of a failed call.
    pub fn call(rpc: &'static str, status: &tonic::Status) -> Self {
        Self::Call {
            rpc,
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}
