//! EC2, STS and instance metadata, simulated on loopback.
//!
//! [`Sim`] is the whole service as one step: a request and the time go in, a reply comes out. It holds no clock and no socket, so
//! that it runs as well under virtual time. [`Server`] puts sockets, a clock and block devices around it.
//!
//! A request passes these: `server` (sockets, the control API, instance metadata), `sim` (who
//! calls, faults, the reply, the journal), `iam` and `limits` (whether the call is let in), `actions`
//! (EC2's actions), `state` (what exists), `devices` (what appears on the machine). `scenario` is the
//! world at the start, `wire` the Query protocol, `faults` what can go wrong.

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
pub use sim::delivery::Delivery;
pub use sim::{Reply, Request, Sim};
