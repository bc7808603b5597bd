//! Compares live processes with their profiles in the policy.
//!
//! What `/proc` shows comes first: users, groups, capabilities and the number of filters of each
//! thread, limits, arguments, open files, disks, sockets and namespaces. `ptrace` adds the filters
//! themselves. Nothing shows Landlock domains: a process itself confirms that part of its profile
//! when it starts.

#![deny(unsafe_code)]

pub mod answer;
mod audit;
mod collected;
mod comparison;
mod machine;
mod process;
pub mod rules;
mod sys;
mod tree;

pub use audit::{Audit, Audited, Source};
pub use collected::Collected;
pub use machine::PROGRAMS_OF_MACHINE;
#[cfg(any(test, fuzzing))]
pub use process::fuzz_inputs;
pub use process::{Process, Thread};
pub use rules::digest::Build;
pub use rules::settings::{Expectation, setting_named};
pub use tree::PARTS_OF_HELPER;
