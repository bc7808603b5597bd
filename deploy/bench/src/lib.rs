//! Measures the driver side by side with its bound, and with another driver's programs where they are given: it speaks CSI to the one side
//! and lets the EC2 simulator be the other.

pub mod cluster;
pub mod controller;
pub mod echo;
pub mod error;
pub mod extent;
pub mod failover;
pub mod figure;
pub mod host;
pub mod live;
pub mod memory_limit;
pub mod node;
pub mod page;
mod picture;
pub mod results;
pub mod summary;
