//! A live process, and what an audit of it printed.

use std::error::Error;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stand_in::{READY, STAND_IN};
use crate::{AUDITOR, TestResult};

/// The longest wait for a signal's effect, and the time between two looks.
const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);
/// Gives a stand-in of the helper namespaces of its own, with a shared mount of /tmp.
pub(crate) const ISOLATED: &str = "unshare -n -i -u -m --propagation private sh -c 'mount --bind /tmp /tmp && mount --make-shared /tmp && exec \"$0\" \"$@\"' \"$0\" \"$@\"";

/// A process that is audited. Its end closes the input that it waits at.
pub(crate) struct Running {
    child: Child,
    // Removes the program.
    _place: Option<tempfile::TempDir>,
}

impl Running {
    /// Starts a stand-in whose program is `ebs-csi-controller`.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Result<Self, Box<dyn Error>> {
        Self::of("ebs-csi-controller", &[&[name], arguments].concat())
    }

    /// Starts a stand-in whose program has this name.
    pub(crate) fn of(program: &str, arguments: &[&str]) -> Result<Self, Box<dyn Error>> {
        let place = tempfile::tempdir()?;
        let program = place.path().join(program);
        fs::copy(std::env::current_exe()?, &program)?;
        let mut command = Command::new(&program);
        let mut started = Self::spawn(command.arg(STAND_IN).args(arguments), 1)?;
        started._place = Some(place);
        Ok(started)
    }

    /// Starts a stand-in for so many processes of the helper, by way of this shell command.
    pub(crate) fn helper(
        by: &str,
        name: &str,
        processes: usize,
        arguments: &[&str],
    ) -> Result<Self, Box<dyn Error>> {
        let place = tempfile::tempdir()?;
        let program = place.path().join("ebs-csi-mount-helper");
        fs::copy(std::env::current_exe()?, &program)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {by}")]).arg(&program);
        let shell = shell.args([STAND_IN, name, "--kubelet-root=/tmp"]).args(arguments);
        let mut started = Self::spawn(shell, processes)?;
        started._place = Some(place);
        Ok(started)
    }

    pub(crate) fn spawn(command: &mut Command, processes: usize) -> Result<Self, Box<dyn Error>> {
        let child = command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut started = Self { child, _place: None };
        let mut ready = vec![0; processes];
        let said = started.child.stdout.as_mut().ok_or("no output")?.read_exact(&mut ready);
        said.map_err(|_| "the stand-in has failed")?;
        check(ready.iter().all(|byte| *byte == READY), &ready)?;
        Ok(started)
    }

    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub(crate) fn audit_as(&self, profile: &str) -> io::Result<Audited> {
        audit(&["--pid", &self.pid(), "--as", profile])
    }

    pub(crate) fn audit_tree(&self) -> io::Result<Audited> {
        audit(&["--tree", &self.pid()])
    }

    pub(crate) fn signal(&self, signal: Signal) -> TestResult {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    pub(crate) fn becomes_stopped(&self) -> TestResult {
        let status = format!("/proc/{}/status", self.pid());
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if fs::read_to_string(&status)?.contains("State:\tT (stopped)") {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err("the process is not stopped".into())
    }

    /// Waits until the process ends by this signal.
    pub(crate) fn ended_by(&mut self, signal: Signal) -> TestResult {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return check(status.signal() == Some(signal.as_raw()), &status);
            }
            std::thread::sleep(PAUSE);
        }
        Err("the signal is lost".into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

pub(crate) fn check(holds: bool, found: &dyn std::fmt::Debug) -> TestResult {
    if holds { Ok(()) } else { Err(format!("{found:#?}").into()) }
}

/// What an audit printed.
#[derive(Debug)]
pub(crate) struct Audited {
    pub(crate) status: ExitStatus,
    pub(crate) text: String,
    /// The rules that do not conform, without those on Landlock.
    rules: Vec<String>,
}

/// Runs the auditor in both forms, and compares their status.
pub(crate) fn audit(arguments: &[&str]) -> io::Result<Audited> {
    let run =
        |more: &[&str]| Command::new(AUDITOR).arg("audit").args(arguments).args(more).output();
    let (text, json) = (run(&[])?, run(&["--format", "json"])?);
    let text_of = |output: &Output| {
        let bytes = [&output.stdout[..], &output.stderr].concat();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let parsed: Value = serde_json::from_slice(&json.stdout)
        .map_err(|error| io::Error::other(format!("{error}: {}", text_of(&json))))?;
    let is_same = json.status == text.status
        && parsed["status"].as_i64() == json.status.code().map(i64::from);
    if !is_same {
        return Err(io::Error::other(format!("{text:?} and {json:?} differ")));
    }
    let processes = parsed["processes"].as_array().into_iter().flatten();
    let answers = processes.map(|one| &one["answers"]).chain([&parsed["machine"]]);
    let answers = answers.flat_map(|all| all.as_array().into_iter().flatten());
    let odd = answers.filter(|one| one["answer"] != "conforms" && one["by_design"] == false);
    let mut rules: Vec<_> =
        odd.map(|one| one["rule"].as_str().unwrap_or_default().to_owned()).collect();
    rules.dedup();
    Ok(Audited { status: text.status, text: text_of(&text), rules })
}

impl Audited {
    /// Compares the exit status and the rules that do not conform.
    pub(crate) fn is(&self, status: i32, rules: &[&str]) -> TestResult {
        check(self.status.code() == Some(status) && self.rules == rules, self)
    }

    /// Compares the exit status, and looks for words in the text.
    pub(crate) fn says(&self, status: i32, words: &[&str]) -> TestResult {
        let missing = words.iter().find(|word| !self.text.contains(*word));
        check(self.status.code() == Some(status) && missing.is_none(), &(missing, self))
    }
}
