//! Tests the Controller service through its socket, with the real SDK, against the simulator.

mod attach;
mod cards;
mod create;
mod driver;
mod fences;
mod honest;
#[path = "../world/in_process.rs"]
mod in_process;
mod life;
mod list;
mod modify;
mod node_local;
mod place;
mod published;
mod reads;
mod refuse;
mod safe_detach;
mod safe_detach_socket;
mod slow;
mod snapshot;
mod source;
#[path = "../world/mod.rs"]
mod world;
