//! The services of the CSI socket: requests in, responses out.

mod capabilities;
mod node_local;
mod publish_context;
pub mod rpc;
pub mod service;
mod validated;
mod volume_health;
