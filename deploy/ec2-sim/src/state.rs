//! The resources of the simulated accounts, the staleness of reads, and the invariants.

pub(crate) mod consistency;
pub(crate) mod ids;
pub(crate) mod invariants;
pub(crate) mod realm;
pub(crate) mod resources;

pub use realm::Realm;
pub use resources::snapshot::Snapshot;
pub use resources::volume::{Origin, Volume};
pub use resources::zone::ZoneState;
