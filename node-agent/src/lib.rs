//! The unprivileged CSI Node service.
//!
//! Kubelet's requests are parsed into checked types ([`request`]), sent to the mount-helper
//! ([`helper`]) and answered ([`node`]). The facts about the instance are read once ([`facts`]),
//! before the process confines itself. Afterwards the process makes no system call on a volume,
//! holds no credential and opens no network connection.

#![forbid(unsafe_code)]

pub mod attach_limit;
mod deadline;
pub mod facts;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/inputs.rs"]
pub mod fuzz_inputs;
pub mod helper;
pub mod http_endpoint;
pub mod metrics;
pub mod node;
pub mod pre_stop;
pub mod preflight;
pub mod registration;
mod request;
pub mod service;
pub mod settings;
