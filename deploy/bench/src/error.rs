//! The errors of a measurement.

use ebs_csi_sandbox::{CoError, WorldError};

/// The reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The driver refused a call that it must accept.
    #[error(transparent)]
    Co(#[from] CoError),
    /// The sandbox world failed.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Reading the state of the machine or of the simulator failed.
    #[error("{0}")]
    Look(#[from] std::io::Error),
    /// A call ended with an unexpected code.
    #[error("{rpc} ended with {code:?}: {message}")]
    Call {
        /// Name of the RPC.
        rpc: &'static str,
        /// gRPC code.
        code: tonic::Code,
        /// The driver's message.
        message: String,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<String> for BenchError {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

impl BenchError {
    /// Returns the error of a failed call.
    pub fn call(rpc: &'static str, status: &tonic::Status) -> Self {
        Self::Call { rpc, code: status.code(), message: status.message().to_owned() }
    }
}
