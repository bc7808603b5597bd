//! The CSI Controller service; the only crate that links the AWS SDK.
//!
//! A library, so that its clock, its randomness and its HTTP connector can be handed in: time is `tokio::time`, the rest stands in
//! [`ec2::Surroundings`] and [`ec2::Settings`].

pub mod config;
pub mod confinement;
pub mod ec2;
pub mod http;
pub mod metrics;
pub mod probe;
pub mod process;
pub mod rpc;
