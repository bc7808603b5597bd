//! What stands on a disk stays, and what its controller counts is told.

mod content;
mod statistics;
