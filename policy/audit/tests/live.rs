//! The auditor against live processes. For each that holds what its profile does not give, there is
//! one that holds what it does.
//!
//! The stand-ins are this program, started again with a single thread. For that reason the program
//! has no test harness.

mod stand_in;

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use stand_in::{READY, STAND_IN};

pub(crate) type TestResult = Result<(), Box<dyn Error>>;
type Case = fn() -> TestResult;

const AUDITOR: &str = env!("CARGO_BIN_EXE_ebs-csi-policy");

const AS_PROFILE: i32 = 0;
const DEVIATES: i32 = 1;
const INCOMPLETE: i32 = 2;
const BAD_USAGE: i32 = 64;

/// The longest wait for a signal's effect, and the time between two looks.
const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);

/// A test that finds itself in this place runs in a process namespace of its own.
const IN_NAMESPACE: &str = "in-namespace";

const CASES: &[(&str, Case)] = &[
    ("confined_processes_have_no_deviation", || {
        for name in ["controller", "directories", "broker", "relay"] {
            let process = Running::start(name, 1)?;
            expect(&process.audit_as(name)?, AS_PROFILE, "as its profile says")?;
        }
        let helper = Running::helper("supervisor", 4)?;
        expect(&helper.audit_tree()?, AS_PROFILE, " opener ")
    }),
    ("filter_that_allows_all_is_deviation", || {
        let process = Running::start("allow-all-filter", 1)?;
        expect(
            &process.audit_as("directories")?,
            DEVIATES,
            "system call filters: expected the 2 of",
        )
    }),
    ("many_filters_that_allow_all_are_deviation", || {
        let process = Running::start("ten-allow-all-filters", 1)?;
        expect(&process.audit_as("controller")?, DEVIATES, "system call filters: expected the 6 of")
    }),
    ("tcp_listener_without_flag_is_deviation", || {
        let process = Running::start("listener", 1)?;
        expect(&process.audit_as("controller")?, DEVIATES, "found a TCP listener at port")?;
        let mut flagged = stand_in_of(&std::env::current_exe()?, "listener");
        flagged.arg("--http-endpoint=127.0.0.1:0");
        expect(&Running::spawn(flagged, 1)?.audit_as("controller")?, AS_PROFILE, "")
    }),
    ("open_file_of_root_is_deviation", || {
        let process = Running::start("shadow", 1)?;
        expect(&process.audit_as("controller")?, DEVIATES, "found /etc/shadow (descriptor")
    }),
    ("groups_of_root_and_disks_are_deviation", || {
        let process = Running::start("groups", 1)?;
        expect(&process.audit_as("controller")?, DEVIATES, "supplementary groups: expected")?;
        expect(&process.audit_as("controller")?, DEVIATES, "found [0, 6]")
    }),
    ("second_thread_with_all_rights_is_deviation", || {
        let process = Running::start("thread", 1)?;
        let output = process.audit_as("controller")?;
        for what in ["user", "effective capabilities", "no_new_privs", "seccomp"] {
            expect(&output, DEVIATES, what)?;
        }
        expect(&output, DEVIATES, "in thread")
    }),
    ("process_with_name_of_other_bytes_is_judged", || {
        let helper = Running::helper("supervisor-of-renamed", 4)?;
        let output = helper.audit_tree()?;
        expect(&output, DEVIATES, " broker ")?;
        expect(&output, DEVIATES, "seccomp: expected 2 (filter), found 0")
    }),
    ("missing_process_of_helper_is_deviation", || {
        let helper = Running::helper("supervisor-without-broker", 3)?;
        expect(&helper.audit_tree()?, DEVIATES, "processes: expected broker, found none")
    }),
    ("process_whose_first_thread_ended_is_judged", || {
        let script = "import ctypes, sys, threading\n\
                      def wait():\n    while ') Z' not in open('/proc/self/stat').read(): pass\n    \
                      sys.stdout.write('r'); sys.stdout.flush(); sys.stdin.read()\n\
                      threading.Thread(target=wait).start()\n\
                      ctypes.CDLL(None).syscall({'x86_64': 60}.get(__import__('os').uname().machine, 93), 0)";
        let mut python = Command::new("python3");
        python.args(["-c", script]);
        let process = match Running::spawn(python, 1) {
            Err(_) => return skip("no python3"),
            Ok(process) => process,
        };
        expect(&process.audit_as("directories")?, DEVIATES, "seccomp: expected 2 (filter), found 0")
    }),
    ("replaced_program_is_listed_and_deviation", || in_namespace("replaced-program")),
    ("closed_output_is_failure", || {
        let process = Running::start("controller", 1)?;
        let (reader, writer) = io::pipe()?;
        drop(reader);
        let pid = process.pid();
        let mut auditor = Command::new(AUDITOR);
        auditor.args(["audit", "--pid", &pid, "--as", "controller"]);
        let output = auditor.stdout(Stdio::from(OwnedFd::from(writer))).output()?;
        expect(&output, INCOMPLETE, "Broken pipe")?;
        let full = fs::OpenOptions::new().write(true).open("/dev/full")?;
        expect(&auditor.stdout(full).output()?, INCOMPLETE, "No space left")
    }),
    ("argument_that_is_no_utf8_is_bad_usage", || {
        let no_text = OsStr::from_bytes(b"\xff");
        for arguments in [&[no_text][..], &["audit".as_ref(), "--tree".as_ref(), no_text]] {
            let output = Command::new(AUDITOR).args(arguments).output()?;
            expect(&output, BAD_USAGE, "")?;
            let lines = String::from_utf8_lossy(&output.stderr).lines().count();
            check(lines == 1, &output)?;
        }
        Ok(())
    }),
    ("unreadable_process_is_status_2", || {
        let process = Running::start("controller", 1)?;
        let pid = process.pid();
        let arguments = ["audit", "--pid", &pid, "--as", "controller"];
        let place = tempfile::tempdir()?;
        let auditor = place.path().join("auditor");
        fs::copy(AUDITOR, &auditor)?;
        fs::set_permissions(place.path(), fs::metadata("/usr")?.permissions())?;
        let output = Command::new(&auditor).args(arguments).uid(4242).gid(4242).output()?;
        expect(&output, INCOMPLETE, "Permission denied")?;
        let absent = Command::new(AUDITOR).args(["audit", "--tree", "4194304"]).output()?;
        expect(&absent, INCOMPLETE, "4194304")
    }),
    // The kernel shows filters only to a process that has none.
    ("auditor_under_filter_exits_with_2", || {
        let process = Running::start("controller", 1)?;
        let mut auditor = Command::new(std::env::current_exe()?);
        auditor.args([STAND_IN, "auditor-under-filter", AUDITOR]);
        auditor.args(["audit", "--pid", &process.pid(), "--as", "controller"]);
        expect(&auditor.output()?, INCOMPLETE, "cannot be read in full")
    }),
    ("audited_process_keeps_its_signals", || {
        for _ in 0..20 {
            let mut process = Running::start("controller", 1)?;
            let pid = process.pid();
            let mut auditor = Command::new(AUDITOR)
                .args(["audit", "--pid", &pid, "--as", "controller"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            process.signal(Signal::TERM)?;
            process.ended_by(Signal::TERM)?;
            auditor.wait()?;
        }
        Ok(())
    }),
    ("stopped_process_is_judged_and_stays_stopped", || {
        let mut process = Running::start("controller", 1)?;
        process.signal(Signal::STOP)?;
        process.becomes_stopped()?;
        process.signal(Signal::TERM)?;
        expect(&process.audit_as("controller")?, AS_PROFILE, "as its profile says")?;
        process.becomes_stopped()?;
        process.signal(Signal::CONT)?;
        process.ended_by(Signal::TERM)
    }),
];

/// What runs in a process namespace of its own, where `--all` sees the test's processes alone.
const NAMESPACE_CASES: &[(&str, Case)] = &[("replaced-program", || {
    let place = tempfile::tempdir()?;
    let program = place.path().join("ebs-csi-controller");
    fs::copy(std::env::current_exe()?, &program)?;
    let process = Running::spawn(stand_in_of(&program, "controller"), 1)?;
    let audit_all = || Command::new(AUDITOR).args(["audit", "--all"]).output();
    expect(&audit_all()?, AS_PROFILE, " ebs-csi-controller ")?;
    fs::write(place.path().join("new"), "")?;
    fs::rename(place.path().join("new"), &program)?;
    let replaced = "program: expected the file at its path, found a file that was replaced";
    expect(&audit_all()?, DEVIATES, replaced)?;
    expect(&process.audit_as("controller")?, DEVIATES, replaced)
})];

/// A process that is audited. Its end closes the input that it waits at.
struct Running {
    child: Child,
    // Removes the program.
    _place: Option<tempfile::TempDir>,
}

impl Running {
    fn start(name: &str, processes: usize) -> Result<Self, Box<dyn Error>> {
        Self::spawn(stand_in_of(&std::env::current_exe()?, name), processes)
    }

    /// Starts a stand-in whose program has the name of the helper's.
    fn helper(name: &str, processes: usize) -> Result<Self, Box<dyn Error>> {
        let place = tempfile::tempdir()?;
        let program = place.path().join("ebs-csi-mount-helper");
        fs::copy(std::env::current_exe()?, &program)?;
        let mut started = Self::spawn(stand_in_of(&program, name), processes)?;
        started._place = Some(place);
        Ok(started)
    }

    fn spawn(mut command: Command, processes: usize) -> Result<Self, Box<dyn Error>> {
        let child = command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut started = Self { child, _place: None };
        let mut ready = vec![0; processes];
        let said = started.child.stdout.as_mut().ok_or("no output")?.read_exact(&mut ready);
        said.map_err(|_| "the stand-in has failed")?;
        check(ready.iter().all(|byte| *byte == READY), &ready)?;
        Ok(started)
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn audit_as(&self, profile: &str) -> io::Result<Output> {
        Command::new(AUDITOR).args(["audit", "--pid", &self.pid(), "--as", profile]).output()
    }

    fn audit_tree(&self) -> io::Result<Output> {
        Command::new(AUDITOR).args(["audit", "--tree", &self.pid()]).output()
    }

    fn signal(&self, signal: Signal) -> TestResult {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn becomes_stopped(&self) -> TestResult {
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
    fn ended_by(&mut self, signal: Signal) -> TestResult {
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

fn stand_in_of(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.args([STAND_IN, name]);
    command
}

fn in_namespace(name: &str) -> TestResult {
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .arg(std::env::current_exe()?)
        .args([IN_NAMESPACE, name])
        .output()?;
    check(output.status.success(), &output)
}

fn skip(why: &str) -> TestResult {
    println!("skipped: {why}");
    Ok(())
}

fn check(holds: bool, found: &dyn std::fmt::Debug) -> TestResult {
    if holds { Ok(()) } else { Err(format!("{found:#?}").into()) }
}

/// Compares the auditor's status, and looks for a word in its output.
fn expect(output: &Output, status: i32, word: &str) -> TestResult {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if output.status.code() == Some(status) && text.contains(word) {
        return Ok(());
    }
    Err(format!("not status {status} with {word:?}, but {}:\n{text}", output.status).into())
}

fn outcome(outcome: &TestResult) -> ExitCode {
    if let Err(problem) = outcome {
        println!("    {problem}");
    }
    ExitCode::from(u8::from(outcome.is_err()))
}

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|one| one.to_string_lossy().into_owned()).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [STAND_IN, name, ..] => return outcome(&stand_in::be(name)),
        [IN_NAMESPACE, name] => {
            let case = NAMESPACE_CASES.iter().find(|(known, _)| *known == name);
            return outcome(&case.map_or_else(|| Err("no such case".into()), |(_, case)| case()));
        }
        _ => {}
    }
    if !geteuid().is_root() {
        println!("skipped: confinement starts as root");
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(*word));
    let mut failed = 0;
    for (name, case) in CASES.iter().filter(|(name, _)| is_wanted(name)) {
        let found = case();
        println!("test {name} ... {}", if found.is_ok() { "ok" } else { "FAILED" });
        if let Err(problem) = found {
            println!("    {problem}");
            failed += 1;
        }
    }
    ExitCode::from(u8::from(failed > 0))
}
