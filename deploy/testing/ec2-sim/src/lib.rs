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

mod actions;
mod command;
mod devices;
mod faults;
mod iam;
mod limits;
mod random;
mod scenario;
mod server;
mod sim;
mod state;
mod time;
mod wire;

pub use actions::{Keys, Power, ResourceTypes, examples, resource_types};
pub use command::{Command, EX_USAGE};
pub use devices::DeviceMode;
pub use faults::FaultRule;
pub use iam::IamSetting;
pub use iam::policy::{Document, OneOrMany};
pub use random::Random;
pub use scenario::Scenario;
pub use server::control_client::ControlClient;
pub use server::{Server, ServerOptions};
pub use sim::{Delivery, Reply, Request, Sim};
pub use state::{ModificationState, Origin, Realm, Volume, ZoneState};
pub use time::Millis;
