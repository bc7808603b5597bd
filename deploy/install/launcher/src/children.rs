//! Starts the processes of a mode.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use ebs_csi_policy::profile::{LAUNCHER, Profile};
use rustix::process::{Pid, Signal, kill_process};

use crate::supervise::Running;

/// Returns the path of a program of the driver, in the directory of this program.
pub(crate) fn program_path(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().map_or_else(|| PathBuf::from(name), |directory| directory.join(name)))
}

/// Leaves `command` the variables that a process with the profile keeps, and those that the
/// launcher keeps itself: only the controller inherits credentials and the variables that refer to
/// them.
pub(crate) fn limit_environment(command: &mut Command, profile: &Profile) {
    let passed = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_str();
        name.is_some_and(|name| profile.keeps_variable(name) || LAUNCHER.keeps_variable(name))
    });
    command.env_clear().envs(passed);
}

/// The processes that have been started. Dropping the value kills them with SIGKILL.
#[derive(Debug, Default)]
pub(crate) struct Started(Vec<Running>);

impl Started {
    /// Starts `program`, whose first process has the profile, from the directory of this program,
    /// and logs it as `name`.
    pub(crate) fn start(
        &mut self,
        name: &str,
        program: &str,
        arguments: &[String],
        profile: &Profile,
    ) -> io::Result<()> {
        let path = program_path(program)?;
        let mut command = Command::new(&path);
        command.args(arguments);
        limit_environment(&mut command, profile);
        let child = command
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("starting {}: {e}", path.display())))?;
        tracing::info!(process = name, pid = child.id(), "started");
        // The next image of this process (`supervise`) waits for the child.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        self.0.extend(pid.map(|pid| Running { name: name.to_owned(), pid }));
        Ok(())
    }

    pub(crate) fn processes(&self) -> &[Running] {
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
