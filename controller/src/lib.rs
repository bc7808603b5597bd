//! The CSI Controller service; the only crate that links the AWS SDK.
//!
//! The service is a library, so that tests can supply clock, randomness and HTTP client: time is
//! `tokio::time`, the rest stands in [`ec2::Surroundings`] and [`ec2::Settings`].

pub mod attach;
mod callers;
pub mod capabilities;
pub mod config;
pub mod confinement;
pub mod device_name;
pub mod ec2;
pub mod ec2_failure;
pub mod health;
pub mod http;
pub mod iops;
#[doc(hidden)]
pub mod known_bug;
pub mod listing;
pub mod metrics;
pub mod modify;
pub mod node_local;
pub mod operations;
pub mod orphans;
pub mod parameters;
pub mod patience;
pub mod probe;
pub mod process;
pub mod publish_context;
mod remembered;
pub mod request;
pub mod rpc;
pub mod safe_detach;
pub mod service;
pub mod signal;
pub mod snapshot;
pub mod source;
pub mod tags;
pub mod tally;
pub mod template;
pub mod token;
pub mod topology;
pub mod traces;
pub mod volume;

/// The version, as `GetPluginInfo` reports it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
