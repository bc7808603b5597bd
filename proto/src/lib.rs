//! CSI messages, capabilities, sizes, and the one table from [`Failure`] to gRPC status.
//!
//! The crate holds the CSI socket code that the controller and the node-agent share.

pub mod caller_timeout;
pub mod capability;
pub mod capacity;
pub mod endpoint;
pub mod failure;
pub mod health;
pub mod http_endpoint;
pub mod identity;
pub mod keys;
pub mod metrics;
pub mod observe;
pub mod program;
pub mod serve;
mod status;

/// Messages and services of the CSI specification 1.13.0, generated from `csi/csi.proto`.
pub mod csi {
    #![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
    include!("gen/csi.v1.rs");
    include!("gen/csi.v1.redacted.rs");
}

/// Kubelet's plugin registration interface, generated from `kubelet/registration.proto`.
pub mod pluginregistration {
    #![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
    include!("gen/pluginregistration.rs");
}

/// Messages and service of the volume modifier, the sidecar that preceded ControllerModifyVolume,
/// generated from `modify/modify.proto`.
pub mod modify {
    #![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
    include!("gen/modify.v1.rs");
}

/// Messages and service of the controller's socket for node-lifecycle, generated from
/// `safe_detach/safe_detach.proto`.
pub mod safe_detach {
    #![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
    include!("gen/safe_detach.v1.rs");
}

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use capability::{AccessMode, AccessType, Capability};
pub use capacity::{Bytes, CapacityRange, GiB};
pub use endpoint::Endpoint;
pub use failure::{Condition, Failure};
pub use keys::publish_context;
pub use status::code_name;

/// Locks a value that every statement under the lock leaves consistent, so that a panic elsewhere
/// does not invalidate it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's name in Kubernetes objects and AWS tags.
pub const DRIVER_NAME: &str = "ebs.csi.aws.com";
