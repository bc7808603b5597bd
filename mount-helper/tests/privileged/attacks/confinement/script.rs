//! A process that enters a profile as the helper does, and then attempts what the profile forbids.
//! A test starts this program again, and the new process forks, because confinement must precede a
//! second thread.
use ebs_csi_mount_helper::sys::{Fork, fork};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::fmt::Debug;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio, exit};

/// Environment variable with the script's name and arguments.
const SCRIPT: &str = "SCRIPT_OF_ATTACK";

/// Added to the number of the signal that ended a script, to form the exit status.
const BY_SIGNAL: i32 = 128;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScriptEnd {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

#[derive(Debug)]
pub(super) struct Ran {
    pub(super) output: String,
    pub(super) end: ScriptEnd,
}

impl Ran {
    /// Returns the value that the script printed for a word.
    #[track_caller]
    pub(super) fn value(&self, word: &str) -> &str {
        let value = self.output.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {word} in {self:?}"))
    }
}

/// Prints a value so that [`Ran::value`] finds it.
pub(super) fn print_value(word: &str, value: impl Debug) {
    // The test harness has begun a line, so the output starts with a new one.
    println!("\n{word}={value:?}");
}

pub(super) fn run(name: &str, arguments: &[&str]) -> Ran {
    wait_for(Command::new(this_program()), name, arguments)
}

/// Runs a script that mounts, in a mount namespace of its own. While it runs, that namespace has a
/// copy of each mount of the other tests.
pub(super) fn run_apart(name: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(this_program());
    wait_for(command, name, arguments)
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program")
}

fn wait_for(mut command: Command, name: &str, arguments: &[&str]) -> Ran {
    let words = [&[name][..], arguments].concat().join(" ");
    let Output { status, stdout, stderr } = command
        .args(["--exact", "attacks::confinement::script", "--ignored"])
        .args(["--nocapture", "--test-threads=1"])
        .env(SCRIPT, words)
        .stdin(Stdio::null())
        .output()
        .expect("start");
    let end = match status.code().unwrap_or(-1) {
        code if code > BY_SIGNAL => ScriptEnd::Signalled(code - BY_SIGNAL),
        code => ScriptEnd::Exited(code),
    };
    let output = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    Ran { output, end }
}

/// Returns the words that [`run`] passed, or `None` when a person started the test.
pub(super) fn given() -> Option<Vec<String>> {
    let words = std::env::var(SCRIPT).ok()?;
    Some(words.split(' ').map(str::to_owned).collect())
}

/// Runs `act` in a forked process with one thread, and exits with the result of that process.
pub(super) fn alone(act: impl FnOnce()) {
    match fork().expect("fork") {
        Fork::Child => {
            act();
            exit(0);
        }
        Fork::Parent(child) => {
            let ended = waitpid(Pid::from_raw(child), WaitOptions::empty()).expect("wait");
            let (_, status) = ended.expect("ended");
            let by_signal = status.terminating_signal().map(|one| BY_SIGNAL + one);
            exit(by_signal.or(status.exit_status()).unwrap_or(-1));
        }
    }
}
