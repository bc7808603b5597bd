//! A small process that outlives the world's and cleans up after it, whatever killed it.
//!
//! It holds the reading end of a pipe whose writing end only the world has: end of file means that the world is gone.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::clean;
use crate::binaries::Binaries;
use crate::sys;

/// The name of the command that is the keeper.
pub const COMMAND: &str = "keep";

/// A running keeper. Dropping it lets it clean, and waits until it has.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
}

impl Keeper {
    /// Starts one for `state_dir`.
    ///
    /// # Errors
    /// When the program is not there or cannot run.
    pub fn start(binaries: &Binaries, state_dir: &Path) -> io::Result<Self> {
        let child = Command::new(binaries.path("ebs-csi-sandbox")?)
            .arg(COMMAND)
            .arg(state_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It writes what it could not do to the standard error that it shares with this process.
        let _ = self.child.wait();
    }
}

/// What the keeper process does: waits for the end of its standard input, then cleans `state_dir`.
///
/// # Errors
/// When something could not be removed.
pub fn run(state_dir: &Path, binaries: &Binaries) -> io::Result<()> {
    sys::own_session();
    sys::ignore_ending_signals();
    io::stdin().read_to_end(&mut Vec::new())?;
    if !state_dir.exists() {
        return Ok(());
    }
    let cleaned = clean::clean(state_dir, binaries);
    if cleaned.problems.is_empty() {
        Ok(())
    } else {
        Err(io::Error::other(cleaned.problems.join("; ")))
    }
}
