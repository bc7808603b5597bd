//! Measures the driver side by side with its lower bound, and with another driver's programs where
//! they are given. The bench is the driver's CSI caller, and the EC2 simulator stands in for EC2.

mod api_server;
mod contestant;
pub mod controller;
pub mod delay;
pub mod echo;
pub mod error;
pub mod extent;
pub mod failover;
mod memory_limit;
pub mod node;
mod process_usage;
pub mod report;
mod world;
