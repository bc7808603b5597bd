//! The services of the CSI socket: requests in, responses out.

mod node_local;
pub mod rpc;
pub mod service;
mod validated;
mod volume_health;
