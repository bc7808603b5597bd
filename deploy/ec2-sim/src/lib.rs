//! EC2, STS and instance metadata, simulated on loopback.
//!
//! [`Sim`] is the whole service as one step: a request and the time go in, a reply comes out. It holds no clock and no socket, so
//! that it runs as well under virtual time. [`Server`] puts sockets, a clock and block devices around it.

pub mod actions;
pub mod buckets;
pub mod clock;
pub mod command;
pub mod consistency;
pub mod control_client;
pub mod delivery;
pub mod devices;
pub mod error;
pub mod fault;
pub mod faults;
pub mod http;
pub mod iam;
pub mod ids;
pub mod imds;
pub mod invariants;
pub mod journal;
pub mod latency;
pub mod quotas;
pub mod random;
pub mod realm;
pub mod refused;
pub mod resources;
pub mod scenario;
pub mod sim;
pub mod statistics;
pub mod store;
pub mod sts;
mod sys;
pub mod time;
mod usage;
pub mod wire;

pub use control_client::ControlClient;
pub use http::{Server, ServerOptions};
pub use scenario::Scenario;
pub use sim::{Reply, Request, Sim};
