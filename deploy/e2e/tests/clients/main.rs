//! The driver's clients: how the clients of a cluster reach the sockets, and what happens to a call
//! whose client has gone.

mod dialed;
mod gave_up;
