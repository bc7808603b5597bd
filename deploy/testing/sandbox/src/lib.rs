//! A world for the driver on one machine: the EC2 simulator, the real processes on simulated nodes,
//! real block devices, and a small container orchestrator that calls the driver over the CSI
//! sockets alone.
//!
//! [`World`] starts and ends everything; [`Co`] plays the sidecars, [`Kubelet`] plays a node's
//! kubelet. Everything that a world makes lies under one state directory or can be found from it,
//! so that [`clean`](world::clean::clean) can remove it after any kind of crash.

pub mod audit;
pub mod binaries;
pub mod co;
pub mod command_line;
pub mod demo;
pub mod ec2;
mod mount_table;
pub mod pod_view;
mod process_table;
mod sys;
pub mod tool_at_work;
pub mod world;

pub use co::{Co, CoError, Kubelet};
pub use world::node::Node;
pub use world::options::{NodeOptions, WorldOptions, ZONE};
pub use world::process::Process;
pub use world::simulator::Simulator;
pub use world::{Ended, World, WorldError};
