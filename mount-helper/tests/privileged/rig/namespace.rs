//! A mount namespace that a process of its own keeps.
use ebs_csi_wire::KubeletPath;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A mount namespace. It exists until this value is dropped.
pub(crate) struct Namespace(Child);

impl Namespace {
    /// Has a command, which is or starts unshare(1), make a namespace in which this script has run.
    #[track_caller]
    pub(super) fn hold(
        mut command: Command,
        script: &str,
        arguments: &[impl AsRef<OsStr>],
    ) -> Self {
        let script = format!("{script} && echo there && exec sleep infinity");
        command.args(["--mount", "--propagation", "private", "/bin/sh", "-c", &script]);
        command.args(arguments);
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

    /// Returns a path through which a test reaches what this namespace has at `path`.
    pub(crate) fn inside(&self, path: impl Display) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid()))
    }
}

/// A directory that is open on a copy of a mount, in the namespace with the copy.
pub(crate) struct OpenCopy {
    directory: File,
    _namespace: Namespace,
}

impl OpenCopy {
    pub(crate) fn of(namespace: Namespace, path: &KubeletPath) -> Self {
        let directory = File::open(namespace.inside(path)).expect("the copy");
        Self { directory, _namespace: namespace }
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
