//! The Controller service over its socket, with the real SDK, against the simulator.

mod attach;
mod create;
mod driver;
mod life;
mod modify;
mod node_local;
mod refuse;
mod safe_detach;
mod snapshot;
#[path = "../world/mod.rs"]
mod world;
