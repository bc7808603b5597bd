//! The Controller service over its socket, with the real SDK, against the simulator.

mod attach;
mod create;
mod driver;
mod life;
mod modify;
mod refuse;
mod snapshot;
#[allow(dead_code)]
#[path = "../world/mod.rs"]
mod world;
