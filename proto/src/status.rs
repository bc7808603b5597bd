//! The only place where a gRPC code is chosen.
//!
//! `csi/error-tables.csv` lists the spec's own tables; `tests/status_table.rs` compares them with
//! this file and names each deviation with its reason.

use tonic::{Code, Status};

use crate::failure::{Condition, Failure};
use crate::observe::beginning;

/// The longest message, in bytes. It is sent as a header, and clients accept 8 KiB of headers.
const MAX_MESSAGE: usize = 4096;

impl Condition {
    /// Returns the gRPC code of this condition.
    pub fn code(self) -> Code {
        match self {
            Self::MissingField | Self::InvalidField | Self::Unsupported => Code::InvalidArgument,
            Self::NotFound => Code::NotFound,
            Self::Incompatible => Code::AlreadyExists,
            Self::InUse
            | Self::PublishedElsewhere
            | Self::NotPrepared
            | Self::ContentRefused
            | Self::NotReady => Code::FailedPrecondition,
            Self::CapacityOutOfRange => Code::OutOfRange,
            Self::OperationPending | Self::BadStartingToken => Code::Aborted,
            Self::AttachLimit | Self::QuotaExhausted | Self::NoCapacityInTopology => {
                Code::ResourceExhausted
            }
            Self::Throttled | Self::BackendDown | Self::HelperDown | Self::FactsUnknown => {
                Code::Unavailable
            }
            Self::DeadlinePassed => Code::DeadlineExceeded,
            Self::Unimplemented => Code::Unimplemented,
            Self::NotPermitted => Code::PermissionDenied,
            Self::Local | Self::Bug => Code::Internal,
        }
    }

    /// Returns whether sidecars and kubelet read the code as "may still be in progress": they then
    /// keep calling, and later undo what may have been done. Every other code means "certainly not
    /// done".
    pub fn may_be_in_progress(self) -> bool {
        matches!(
            self.code(),
            Code::Aborted
                | Code::Unavailable
                | Code::DeadlineExceeded
                | Code::ResourceExhausted
                | Code::Cancelled
        )
    }
}

/// Returns the name of a code as gRPC for Go writes it, and with it Kubernetes' events and the
/// metrics of the sidecars.
pub const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that chooses a code")]
impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        Self::new(failure.condition().code(), beginning(failure.text(), MAX_MESSAGE))
    }
}
