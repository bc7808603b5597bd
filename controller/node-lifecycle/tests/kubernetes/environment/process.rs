//! Processes that end with the test.

use std::ffi::OsStr;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::environment::world::{TestResult, ensure};

/// A child process that is killed when the value is dropped; its log stays until the test's
/// directory is deleted.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the program with this environment and no other variables.
    pub(crate) fn start<A: AsRef<OsStr>>(
        directory: &Path,
        name: &str,
        program: &Path,
        arguments: &[A],
        environment: &[(&str, &str)],
    ) -> TestResult<Self> {
        let log = directory.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log);
        let file = file.map_err(|e| format!("{}: {e}", log.display()))?;
        let both = file.try_clone()?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(both);
        let child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Returns the exit status, if the process has ended, with the end of its log.
    pub(crate) fn exit_report(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("{} ended: {status}\n{}", self.name, self.tail()))
    }

    pub(crate) fn tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(25);
        lines[from..].join("\n")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the command on another thread, because the other scenarios continue meanwhile.
pub(crate) async fn output(mut command: Command) -> TestResult<Output> {
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// Runs the command, which must succeed, and returns what it prints.
pub(crate) async fn succeed(command: Command) -> TestResult<String> {
    let shown = format!("{command:?}");
    let out = output(command).await?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure(out.status.success(), &format!("{shown}: {said}"))?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Returns a free port, which the process binds a moment later.
pub(crate) fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
