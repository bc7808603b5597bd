//! A small process that outlives the world's process and cleans up after it, whatever killed it.
//!
//! The keeper holds the read end of a pipe whose write end only the world's process has: end of
//! file means that the world's process has ended.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::clean;
use crate::binaries::Binaries;
use crate::sys;

/// The command that runs the keeper.
pub const COMMAND: &str = "keep";

/// A running keeper. Dropping the value makes the keeper clean up, and waits for it.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
}

impl Keeper {
    /// Starts a keeper for `state_dir`.
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
        // The keeper reports what it could not do on the standard error that it shares with this
        // process.
        let _ = self.child.wait();
    }
}

/// Runs the keeper process: waits for the end of its standard input, then cleans `state_dir`.
pub fn run(state_dir: &Path, binaries: &Binaries) -> io::Result<()> {
    // Failing is harmless: the process leads a session already.
    let _ = rustix::process::setsid();
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
