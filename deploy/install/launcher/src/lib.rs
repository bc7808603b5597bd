//! The router of mode `all`, which serves the processes' services on one socket.

pub mod route;
pub mod router;
