//! What exists in the simulated accounts, how it is kept over restarts, how late reads show it, and
//! what must never be true of it.

pub(crate) mod consistency;
pub(crate) mod ids;
pub(crate) mod invariants;
pub mod realm;
pub mod resources;
pub(crate) mod store;
