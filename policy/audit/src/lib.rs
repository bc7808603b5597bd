//! Compares live processes with their profiles in the policy.
//!
//! What `/proc` shows comes first: users, groups, capabilities and the number of filters of each
//! thread, limits, arguments, open files, disks and sockets. `ptrace` adds the filters themselves.
//! Nothing shows Landlock domains: a process itself confirms that part of its profile when it
//! starts.

#![deny(unsafe_code)]

mod comparison;
mod filters;
mod holdings;
mod open_files;
mod process;
mod sys;
mod tree;

pub use process::{Process, Thread};
pub use tree::{PARTS_OF_HELPER, deviations_of_machine, running, unreadable};
