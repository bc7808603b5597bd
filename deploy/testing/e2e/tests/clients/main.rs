//! The clients of a cluster reach the driver's sockets.

mod dialed;
