//! Failover and onboarding of nodes through the Kubernetes API.
//!
//! The process watches nodes, pods, volumes and attachments, asks the controller in its own pod
//! what EC2 proves, and does what [`ebs_csi_safe_detach::lifecycle`] derives. It holds a Kubernetes
//! service account and no AWS credential.

pub mod act;
pub mod confinement;
pub mod controller;
pub mod failover;
pub mod flags;
pub mod glass;
pub mod http;
pub mod journal;
pub mod kubeconfig;
pub mod leader;
pub mod lease_age;
pub mod metrics;
pub mod onboarding;
pub mod preflight;
pub mod process;
pub mod retries;
pub mod seen;
pub mod table;
pub mod tell;
pub mod texts;
pub mod unidentified;
pub mod word;
