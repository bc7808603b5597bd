//! The privileged process: identifies, checks, formats and mounts EBS volumes, and nothing else.
//!
//! One program, seven roles: [`roles::start`] opens what has to be opened by name and forks, and
//! each part confines itself. The [`roles::supervisor`] forks a [`roles::runner`] for each job, and
//! the runner runs one [`tool`]; the broker answers requests ([`session`]) and mounts
//! ([`operation`]); the directories process makes and removes targets; the opener opens disks; the
//! relay checks the key of vsock connections. `README.md` is the contract.
//!
//! [`disk`], [`mount`] and [`tool`] are what an operation works with: a module uses only those that
//! stand before it in the order `disk`, `mount`, `tool`, `operation`, `session`, `roles`.
pub mod channel;
pub mod disk;
mod fault_point;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/inputs.rs"]
pub mod fuzz_inputs;
mod journal;
pub mod mount;
mod operation;
mod outcome;
mod path_resolution;
pub mod roles;
mod session;
mod settings;
pub mod sys;
pub mod tool;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex. What a thread that panicked has left is used as it stands.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
