//! Starts the processes of a mode.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::supervise::Running;

/// Returns the path of a program of the driver, in the directory of this program.
///
/// # Errors
/// Returns an error when this program's own path cannot be read.
pub fn program_path(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().map_or_else(|| PathBuf::from(name), |directory| directory.join(name)))
}

/// The variables that every process may inherit. Only the controller inherits credentials and the
/// variables that refer to them.
pub const FOR_ALL: &[&str] = &["PATH", "RUST_LOG", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"];

/// The further variables of the node-agent: the node's name, the pod's uid, and the location of
/// instance metadata.
pub const FOR_NODE_AGENT: &[&str] = &[
    "CSI_NODE_NAME",
    "POD_UID",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
];

/// The variables that a process inherits.
#[derive(Clone, Copy, Debug)]
pub enum Environment {
    /// All variables: for the controller, whose SDK reads many.
    Whole,
    /// [`FOR_ALL`] and these variables.
    Only(&'static [&'static str]),
}

impl Environment {
    /// Sets the environment of `command`.
    pub fn apply(self, command: &mut Command) {
        let Self::Only(additional) = self else {
            return;
        };
        command.env_clear();
        for variable in FOR_ALL.iter().chain(additional) {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
    }
}

/// The processes that have been started. Dropping the value kills them with SIGKILL.
#[derive(Debug, Default)]
pub struct Started(Vec<Running>);

impl Started {
    /// Starts `program` from the directory of this program, and logs it as `name`.
    ///
    /// # Errors
    /// Returns an error that names the program when it cannot be run.
    pub fn start(
        &mut self,
        name: &str,
        program: &str,
        arguments: &[String],
        environment: Environment,
    ) -> io::Result<()> {
        let path = program_path(program)?;
        let mut command = Command::new(&path);
        command.args(arguments);
        environment.apply(&mut command);
        let child = command
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("starting {}: {e}", path.display())))?;
        tracing::info!(process = name, pid = child.id(), "started");
        // The next image of this process (`supervise`) waits for the child.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        self.0.extend(pid.map(|pid| Running { name: name.to_owned(), pid }));
        Ok(())
    }

    /// Returns the processes.
    pub fn processes(&self) -> &[Running] {
        &self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for process in &self.0 {
            // The process may have ended already.
            let _ = kill_process(process.pid, Signal::KILL);
        }
    }
}
