//! The errors of a measurement.

/// The reason why a measurement failed. Its text names what failed.
pub(crate) type BenchError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Result<T, E = BenchError> = std::result::Result<T, E>;

/// Returns the error of a call to the driver that ended with `status`.
pub(crate) fn failed_call(rpc: &str, status: &tonic::Status) -> BenchError {
    format!("{rpc} ended with {:?}: {}", status.code(), status.message()).into()
}
