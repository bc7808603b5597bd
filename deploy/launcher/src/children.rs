//! Starts the processes of a mode.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::supervise::Running;

/// The path of a program of the driver: beside this one.
///
/// # Errors
/// When this program has no path.
pub fn sibling(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own
        .parent()
        .map_or_else(|| PathBuf::from(name), |directory| directory.join(name)))
}

/// The variables that a process other than the controller may inherit. Credentials, and what names
/// them, are the controller's alone.
pub const FOR_ALL: &[&str] = &["PATH", "RUST_LOG", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"];

/// What the node-agent reads besides: the node's name, and where instance metadata is.
pub const FOR_NODE_AGENT: &[&str] = &[
    "CSI_NODE_NAME",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
];

/// Which variables a process inherits.
#[derive(Clone, Copy, Debug)]
pub enum Environment {
    /// Every one: for the controller, whose SDK reads many.
    Whole,
    /// [`FOR_ALL`] and these.
    Only(&'static [&'static str]),
}

impl Environment {
    /// Makes it the environment of `command`.
    pub fn apply(self, command: &mut Command) {
        let Self::Only(further) = self else {
            return;
        };
        command.env_clear();
        for variable in FOR_ALL.iter().chain(further) {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
    }
}

/// The processes that have been started. Dropped before they are handed over, it ends them.
#[derive(Debug, Default)]
pub struct Started(Vec<Running>);

impl Started {
    /// Starts `program`, called `name` in the log, from beside this program.
    ///
    /// # Errors
    /// When it cannot be run; the text names it.
    pub fn start(
        &mut self,
        name: &str,
        program: &str,
        arguments: &[String],
        environment: Environment,
    ) -> io::Result<()> {
        let path = sibling(program)?;
        let mut command = Command::new(&path);
        command.args(arguments);
        environment.apply(&mut command);
        let child = command
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("starting {}: {e}", path.display())))?;
        tracing::info!(process = name, pid = child.id(), "started");
        // The image of this process that follows waits for it.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        self.0.extend(pid.map(|pid| Running {
            name: name.to_owned(),
            pid,
        }));
        Ok(())
    }

    /// The processes.
    pub fn processes(&self) -> &[Running] {
        &self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for process in &self.0 {
            // It may have ended by itself.
            let _ = kill_process(process.pid, Signal::KILL);
        }
    }
}
