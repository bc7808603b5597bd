//! The CSI Controller service; the only crate that links the AWS SDK.

pub mod ec2;
pub mod metrics;
