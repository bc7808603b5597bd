//! A process that enters a profile as the helper does, and then does what it must not. A test
//! starts this program again, and that forks: confinement comes before a second thread.
use ebs_csi_mount_helper::sys::{Fork, fork};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::fmt::Debug;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio, exit};

/// Names the script, and what it is given.
const SCRIPT: &str = "SCRIPT_OF_ATTACK";

/// Added to the number of the signal that ended a script.
const BY_SIGNAL: i32 = 128;

/// How a script ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

/// What a script printed, and how it ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) said: String,
    pub(super) end: End,
}

impl Ran {
    /// The value that stands behind a word that the script printed.
    #[track_caller]
    pub(super) fn told(&self, word: &str) -> &str {
        let value = self
            .said
            .lines()
            .find_map(|line| line.strip_prefix(word)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {word} in {self:?}"))
    }
}

/// Print what [`Ran::told`] finds.
pub(super) fn tell(word: &str, value: impl Debug) {
    // The harness has begun a line.
    println!("\n{word}={value:?}");
}

/// Run a script in a process of its own.
pub(super) fn run(name: &str, arguments: &[&str]) -> Ran {
    ran(Command::new(itself()), name, arguments)
}

/// Run one that mounts, in a mount namespace of its own. It has a copy of every mount of the other
/// tests for that time.
pub(super) fn run_apart(name: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    command.arg(itself());
    ran(command, name, arguments)
}

fn itself() -> PathBuf {
    std::env::current_exe().expect("this program")
}

fn ran(mut command: Command, name: &str, arguments: &[&str]) -> Ran {
    let words = [&[name][..], arguments].concat().join(" ");
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .args(["--exact", "attacks::confinement::script", "--ignored"])
        .args(["--nocapture", "--test-threads=1"])
        .env(SCRIPT, words)
        .stdin(Stdio::null())
        .output()
        .expect("start");
    let end = match status.code().unwrap_or(-1) {
        code if code > BY_SIGNAL => End::Signalled(code - BY_SIGNAL),
        code => End::Exited(code),
    };
    let said = [stdout, stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Ran { said, end }
}

/// The words that [`run`] was given; None in a run by hand.
pub(super) fn given() -> Option<Vec<String>> {
    let words = std::env::var(SCRIPT).ok()?;
    Some(words.split(' ').map(str::to_owned).collect())
}

/// Do it in a process of one thread, and end as that does.
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
