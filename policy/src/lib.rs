//! The rules as data: what may be mounted, run, opened and called.
pub mod facts;
pub mod judge;
