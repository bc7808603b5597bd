//! Measures the driver side by side with its bound, and with another driver's programs where they are given: it speaks CSI to the one side
//! and lets the EC2 simulator be the other.

mod api_server;
pub mod controller;
pub mod echo;
pub mod error;
pub mod extent;
pub mod failover;
mod memory_limit;
pub mod node;
mod process_usage;
pub mod report;
