//! A mount namespace that a process of its own keeps.
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A mount namespace. It exists until this value is dropped.
pub(crate) struct Namespace(Child);

impl Namespace {
    /// Starts a command that enters its namespace, prints `there` and sleeps.
    #[track_caller]
    pub(super) fn hold(command: &mut Command) -> Self {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.expect("the command starts");
        let stdout = child.stdout.take().expect("stdout");
        // Ends the process also when the next check fails.
        let held = Self(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("read");
        assert_eq!(line, "there\n", "{command:?}");
        held
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
