//! The unprivileged CSI Node service.
//!
//! Kubelet's requests are parsed into checked types ([`request`]), asked of the mount-helper ([`helper`]) and answered
//! ([`node`]). What the process knows of its instance is read once ([`facts`]), before it confines itself; it makes no
//! system call on a volume, holds no credential and opens no network connection afterwards.

#![forbid(unsafe_code)]

pub mod attach_limit;
pub mod attachments;
pub mod confinement;
pub mod deadline;
pub mod facts;
pub mod flags;
pub mod helper;
pub mod http_endpoint;
pub mod metrics;
pub mod node;
pub mod nvme;
pub mod nvme_metrics;
pub mod pre_stop;
pub mod preflight;
pub mod queue;
pub mod registration;
pub mod request;
pub mod service;
pub mod settings;
pub mod socket_file;
pub mod standing;
pub mod topology;
