//! One program run by itself: how it ends and what it says.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The end of a program.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Exit status; `None` after a signal or when it had to be killed because it did not end in 20 s.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A program with this environment and no other.
pub fn bare(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run(mut command: Command) -> Ended {
    let mut child = command.spawn().expect("the program can be started");
    let until = Instant::now() + Duration::from_secs(20);
    let mut late = false;
    while child.try_wait().expect("wait").is_none() {
        if Instant::now() > until {
            late = true;
            child.kill().expect("kill");
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("its output");
    Ended {
        status: status.code().filter(|_| !late),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}
