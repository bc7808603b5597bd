//! Simulates EC2, STS and instance metadata on loopback.
//!
//! [`Sim`] is the whole service as one step: it takes a request and the time, and returns a reply.
//! A `Sim` has no clock and no socket, so it also runs under virtual time. [`Server`] adds sockets,
//! a clock and block devices.
//!
//! A request passes through `server` (sockets, the control API, instance metadata), `sim` (the
//! caller, faults, the reply, the journal), `iam` and `limits` (whether the call is permitted),
//! `actions` (EC2's actions), `state` (the resources) and `devices` (what appears on the machine).
//! `scenario` is the initial state, `wire` the Query protocol, `faults` the faults to inject.

pub mod actions;
pub mod command;
pub mod devices;
pub mod faults;
pub mod iam;
mod limits;
pub mod random;
mod scenario;
mod server;
mod sim;
pub mod state;
pub mod time;
mod wire;

pub use scenario::Scenario;
pub use server::control_client::ControlClient;
pub use server::{Server, ServerOptions};
pub use sim::{Delivery, Reply, Request, Sim};
