//! The resources of the simulated accounts, the staleness of reads, and the invariants.

pub(crate) mod consistency;
mod ids;
pub(crate) mod invariants;
mod realm;
pub(crate) mod resources;

pub(crate) use ids::{Ids, well_formed};
pub(crate) use realm::Key;
pub use realm::Realm;
pub use resources::{ModificationState, Origin, Volume, ZoneState};
