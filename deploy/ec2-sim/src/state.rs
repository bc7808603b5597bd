//! The resources of the simulated accounts, the staleness of reads, and the invariants.

pub(crate) mod consistency;
pub(crate) mod ids;
pub(crate) mod invariants;
pub mod realm;
pub mod resources;
