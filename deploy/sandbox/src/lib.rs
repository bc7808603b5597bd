//! A world for the driver on one machine: the EC2 simulator, the real processes on simulated nodes, real block devices, and a small
//! container orchestrator that speaks to the driver over the CSI sockets alone.
//!
//! [`World`] starts and ends it all; [`Co`] plays the sidecars, [`Kubelet`] plays a node's kubelet. Everything that a world makes lies
//! under one state directory or is found from it, so that [`clean`](clean::clean) can remove it after any kind of death.

pub mod audit;
pub mod bare;
pub mod binaries;
pub mod clean;
pub mod co;
mod container;
pub mod demo;
pub mod figures;
pub mod keeper;
mod mount_table;
mod node;
mod node_namespace;
mod proc;
pub mod process;
mod process_status;
mod simulator;
mod state_dir;
mod sys;
pub mod world;
mod world_options;

pub use co::{Co, CoError, Kubelet};
pub use node::Node;
pub use simulator::Simulator;
pub use world::{Ended, Replica, World, WorldError};
pub use world_options::{NodeOptions, WorldOptions, ZONE};
