//! Failover and onboarding of nodes through the Kubernetes API.
//!
//! The process watches nodes, pods, volumes and attachments, asks the controller in its own pod
//! what EC2 proves, and does what [`ebs_csi_safe_detach::lifecycle`] derives. It holds a Kubernetes
//! service account and no AWS credential.

mod act;
pub mod cluster;
pub mod context;
pub mod controller_client;
pub mod detach_retries;
pub mod events;
pub mod failover;
pub mod flags;
pub mod leader;
pub mod metrics;
pub mod onboarding;
pub mod preflight;
pub mod process;
