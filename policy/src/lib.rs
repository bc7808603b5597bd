//! The rules as data: what may be mounted, run, opened and called.
//!
//! `mounts.toml`, `tools.toml` and `sandbox/*.toml` are compiled in by the build script. [`judge`] decides by them and
//! by [`facts`] what a request may do.
#![forbid(unsafe_code)]

pub mod blank;
pub mod ceiling;
pub mod deviation;
pub mod facts;
pub mod flag;
pub mod judge;
pub mod place;
pub mod profile;
pub mod status;
pub mod tool;
pub mod variant;

/// A number of the kernel's interface, with its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<T = u64> {
    /// The name in the kernel's headers.
    pub name: &'static str,
    /// The number.
    pub number: T,
}
