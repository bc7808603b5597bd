//! The CSI Controller service.
//!
//! The service is a library, so that tests can supply clock, randomness and HTTP client: time is
//! `tokio::time`; [`ebs_csi_ec2::Surroundings`] and [`ebs_csi_ec2::Ec2Settings`] hold the rest.

mod attach;
pub mod csi;
#[cfg(test)]
mod example;
pub mod metrics;
mod modify;
mod operation;
pub mod process;
mod request;
pub mod safe_detach;
mod snapshot;
mod volume;

pub use operation::ordered_watch;
pub use request::tags;

/// The version, as `GetPluginInfo` reports it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
