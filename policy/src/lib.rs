//! The rules as data: what may be mounted, run, opened and called.
//!
//! The TOML files of this folder are the only place where a path, a file system, a flag, a
//! capability, a Landlock right, a system call or the form of a command line is allowed. The files
//! are compiled in. A setting can narrow them through [`ceiling`]; one that [`setting`] calls wider
//! is logged and changes the digest of what is in force.
//! [`judge`] decides about a request from [`facts`] that the helper observed itself.
//!
//! | Module | File | Says |
//! |---|---|---|
//! | [`place`] | `mounts.toml` | where volumes may be staged and published |
//! | [`flag`] | `mounts.toml` | which mount flags are allowed, and what they do |
//! | [`blank`] | `mounts.toml` | what must be zero before a disk counts as blank |
//! | [`tool`] | `tools.toml` | which programs look at a disk, and with which arguments |
//! | [`format_option`] | `format-options.toml` | which options a new file system may have |
//! | [`setting`] | `settings.toml` | which settings permit more, and which less |
//! | [`disk_class`] and [`variant`] | `disks.toml` | which disks are volumes, by policy |
//! | [`profile`] | `sandbox/*.toml` | what each process may do once it has started |
//! | [`profile::process`] | `process.toml` | securebits, namespaces, the Landlock ABI |
//! | [`profile::environment`] | `environment.toml` | variables that are kept and given |
//! | [`profile::socket_file`] | `sockets.toml` | files of unix sockets, and who may connect |

#![forbid(unsafe_code)]

pub mod blank;
pub mod ceiling;
pub mod disk_class;
pub mod facts;
pub mod flag;
pub mod format_option;
pub mod judge;
mod named_values;
mod pattern;
pub mod place;
pub mod profile;
pub mod setting;
pub mod tool;
pub mod variant;

pub use profile::{deviation, process_status};
pub use variant::{FILES, GUEST, PRODUCTION, Policy, SANDBOX};

/// A number of the kernel's interface, with its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<T = u64> {
    /// The name in the kernel's headers.
    pub name: &'static str,
    /// The number.
    pub number: T,
}
