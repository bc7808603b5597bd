//! What the scenarios are played in: the control plane, the driver, the nodes, and what is seen of
//! them.

pub(crate) mod attached;
pub(crate) mod control_plane;
pub(crate) mod driver;
mod ec2;
pub(crate) mod manifests;
pub(crate) mod nodes;
pub(crate) mod process;
pub(crate) mod world;
