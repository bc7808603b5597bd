//! The driver's clients: how those of a cluster reach the sockets, and what becomes of a call whose
//! client is gone.

mod dialed;
mod gave_up;
