//! The services of the CSI socket: requests in, responses out.

pub(crate) mod capabilities;
pub(crate) mod node_local;
pub(crate) mod publish_context;
pub mod rpc;
pub mod service;
pub(crate) mod volume_health;
