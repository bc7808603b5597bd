//! Tests the Controller service through its socket, with the real SDK, against the simulator.

mod create;
mod driver;
mod error_messages;
mod lifecycle;
mod list;
mod modify;
mod placement;
mod publish;
mod reads;
mod refuse;
mod safe_detach;
mod slow;
mod snapshot;
mod source;
#[path = "../world/mod.rs"]
mod world;
