//! Runs one program by itself and records its exit status and its output.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The result of a program.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Exit status; `None` after a signal, and when the program was killed because it did not end
    /// within 20 s.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Returns a command with this environment and `PATH` only.
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

/// Runs the command to its end. Returns its standard output, or both outputs where it failed.
pub fn output(command: &mut Command) -> Result<String, String> {
    let ended = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match ended.status.success() {
        true => Ok(text(&ended.stdout)),
        false => Err(text(&ended.stdout) + &text(&ended.stderr)),
    }
}

/// Runs the command to its end, at most for 20 s.
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
    let Output { status, stdout, stderr } = child.wait_with_output().expect("its output");
    Ended {
        status: status.code().filter(|_| !late),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}
