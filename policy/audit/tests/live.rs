//! The auditor against live processes. For each that holds what its profile does not give, there is
//! one that holds what it does.
//!
//! The stand-ins are this program, started again with a single thread. For that reason the program
//! has no test harness.

#[path = "../../confine/tests/harness/mod.rs"]
mod harness;
mod hostile;
mod namespace;
mod running;
mod stand_in;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Output, Stdio};

pub(crate) use harness::TestResult;
use running::{ISOLATED, Running, audit, check};
use rustix::process::Signal;
use stand_in::STAND_IN;

pub(crate) type Case = fn() -> TestResult;

pub(crate) const AUDITOR: &str = env!("CARGO_BIN_EXE_ebs-csi-policy");

pub(crate) const AS_PROFILE: i32 = 0;
pub(crate) const DEVIATES: i32 = 1;
pub(crate) const NOT_SEEN: i32 = 2;
pub(crate) const BAD_USAGE: i32 = 64;

/// A test that finds itself in this place runs in a process namespace of its own.
const IN_NAMESPACE: &str = "in-namespace";

const CASES: &[(&str, Case)] = &[
    ("confined_processes_conform", || {
        Running::start("controller", &[])?.audit_as("controller")?.is(AS_PROFILE, &[])?;
        for name in ["directories", "broker", "relay"] {
            let process = Running::helper(ISOLATED, name, 1, &[])?;
            process.audit_as(name)?.is(AS_PROFILE, &[])?;
        }
        let helper = Running::helper(ISOLATED, "supervisor", 4, &[])?;
        let audited = helper.audit_tree()?;
        audited.is(AS_PROFILE, &[])?;
        audited.says(AS_PROFILE, &[" opener ", "as its profile says"])
    }),
    ("one_right_too_many_deviates_by_its_rule", || {
        let process = Running::helper(ISOLATED, "allow-all-filter", 1, &[])?;
        process.audit_as("directories")?.is(DEVIATES, &["directories/system-calls"])?;
        for (name, rule) in [
            ("ten-allow-all-filters", "controller/system-calls"),
            ("listener", "controller/sockets"),
            ("shadow", "controller/files"),
            ("groups", "controller/groups"),
        ] {
            Running::start(name, &[])?.audit_as("controller")?.is(DEVIATES, &[rule])?;
        }
        let served = Running::start("listener", &["--http-endpoint=127.0.0.1:0"])?;
        served.audit_as("controller")?.is(AS_PROFILE, &[])
    }),
    ("agent_with_tcp_connection_deviates", || {
        let agent = Running::of("ebs-csi-node-agent", &["connected", "--http-endpoint=:9808"])?;
        let audited = agent.audit_as("node-agent")?;
        audited.is(DEVIATES, &["node-agent/sockets"])?;
        audited.says(DEVIATES, &["a TCP connection from port", "to 127.0.0.1:"])
    }),
    ("widening_setting_deviates_unless_expected", || {
        let broker = Running::helper(ISOLATED, "broker", 1, &["--paths", "any"])?;
        let audited = broker.audit_as("broker")?;
        audited.is(DEVIATES, &["broker/settings"])?;
        audited.says(DEVIATES, &["found --paths=any"])?;
        let of_broker = ["--pid", &broker.pid(), "--as", "broker"];
        audit(&[&of_broker[..], &["--expect=--paths=any"]].concat())?.is(AS_PROFILE, &[])?;
        audit(&[&of_broker[..], &["--expect", "--allow-private-mounts"]].concat())?
            .is(DEVIATES, &["broker/settings"])
    }),
    ("program_of_other_build_deviates", || {
        let place = tempfile::tempdir()?;
        let digests = place.path().join("digests.yaml");
        let image = "0".repeat(64);
        fs::write(&digests, format!("images:\n  controller: {{digest: \"sha256:{image}\"}}\n"))?;
        let process = Running::start("controller", &[])?;
        let summed =
            Command::new("sha256sum").arg(format!("/proc/{}/exe", process.pid())).output()?;
        let summed = String::from_utf8(summed.stdout)?;
        let own = summed.split(' ').next().ok_or("no digest")?;
        let digests = digests.to_str().ok_or("no text")?;
        let pid = process.pid();
        for (listed, status, rules) in
            [(own, AS_PROFILE, &[][..]), (&image, DEVIATES, &["controller/digest"])]
        {
            let file = format!("-755\t0:0\t1\tebs-csi\t1\t{listed}\t/usr/bin/ebs-csi-controller\n");
            let header = "mode\towner\tbytes\tpackage\tversion\tsha256\tpath\n";
            fs::write(place.path().join("controller.files.tsv"), format!("{header}{file}"))?;
            audit(&["--pid", &pid, "--as", "controller", "--digests", digests])?
                .is(status, rules)?;
        }
        Ok(())
    }),
    ("namespace_of_node_or_private_mount_deviates", || {
        for (by, rule) in [
            (ISOLATED.replace(" -n", ""), "broker/namespaces"),
            (ISOLATED.replace("make-shared", "make-private"), "broker/propagation"),
        ] {
            let broker = Running::helper(&by, "broker", 1, &[])?;
            broker.audit_as("broker")?.is(DEVIATES, &[rule])?;
        }
        let moved = Running::helper(ISOLATED, "supervisor-of-moved-broker", 4, &[])?;
        let audited = moved.audit_tree()?;
        audited.is(DEVIATES, &["broker/namespaces"])?;
        audited.says(DEVIATES, &["another uts namespace than the supervisor's"])
    }),
    ("wider_or_missing_socket_file_never_conforms", || {
        let place = tempfile::tempdir()?;
        let socket = place.path().join("helper.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket)?;
        std::os::unix::fs::chown(&socket, Some(0), Some(65524))?;
        let set = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(&socket, mode)
        };
        set(0o660)?;
        let listen = format!("--listen=unix://{}", socket.display());
        let broker = Running::helper(ISOLATED, "broker", 1, &[&listen])?;
        broker.audit_as("broker")?.is(AS_PROFILE, &[])?;
        set(0o666)?;
        broker.audit_as("broker")?.is(DEVIATES, &["broker/socket-files"])?;
        drop((listener, fs::remove_file(&socket)?));
        broker.audit_as("broker")?.is(NOT_SEEN, &["broker/socket-files"])
    }),
    ("second_thread_with_all_rights_deviates", || {
        let audited = Running::start("thread", &[])?.audit_as("controller")?;
        let rules = ["capabilities", "group", "no-new-privs", "system-calls", "user"];
        let rules = rules.map(|rule| format!("controller/{rule}"));
        audited.is(DEVIATES, &rules.each_ref().map(String::as_str))?;
        audited.says(DEVIATES, &["in thread"])
    }),
    ("process_with_name_of_other_bytes_is_judged", || {
        let helper = Running::helper(ISOLATED, "supervisor-of-renamed", 4, &[])?;
        helper.audit_tree()?.is(DEVIATES, &["broker/system-calls"])
    }),
    ("missing_process_of_helper_is_not_seen", || {
        let helper = Running::helper(ISOLATED, "supervisor-without-broker", 3, &[])?;
        let audited = helper.audit_tree()?;
        audited.is(NOT_SEEN, &["supervisor/processes"])?;
        audited.says(NOT_SEEN, &["found 0 of broker"])
    }),
    ("process_whose_first_thread_ended_is_judged", || {
        let script = "import ctypes, sys, threading\n\
                      def wait():\n    while ') Z' not in open('/proc/self/stat').read(): pass\n    \
                      sys.stdout.write('r'); sys.stdout.flush(); sys.stdin.read()\n\
                      threading.Thread(target=wait).start()\n\
                      ctypes.CDLL(None).syscall({'x86_64': 60}.get(__import__('os').uname().machine, 93), 0)";
        let mut python = Command::new("python3");
        python.args(["-c", script]);
        let process = match Running::spawn(&mut python, 1) {
            Err(_) => return skip("no python3"),
            Ok(process) => process,
        };
        process.audit_as("directories")?.says(DEVIATES, &["seccomp 0 instead of 2 (filter)"])
    }),
    ("audit_of_node_names_each_privilege_beyond_profile", || in_namespace("whole-node")),
    ("replaced_or_renamed_program_is_not_seen", || in_namespace("replaced-program")),
    ("collected_processes_get_same_answers", || in_namespace("collected")),
    ("closed_output_is_failure", || {
        let process = Running::start("controller", &[])?;
        let (reader, writer) = io::pipe()?;
        drop(reader);
        let pid = process.pid();
        let mut auditor = Command::new(AUDITOR);
        auditor.args(["audit", "--pid", &pid, "--as", "controller"]);
        let output = auditor.stdout(Stdio::from(OwnedFd::from(writer))).output()?;
        expect(&output, NOT_SEEN, "Broken pipe")?;
        let full = fs::OpenOptions::new().write(true).open("/dev/full")?;
        expect(&auditor.stdout(full).output()?, NOT_SEEN, "No space left")
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
        let process = Running::start("controller", &[])?;
        let pid = process.pid();
        let arguments = ["audit", "--pid", &pid, "--as", "controller"];
        let place = tempfile::tempdir()?;
        let auditor = place.path().join("auditor");
        fs::copy(AUDITOR, &auditor)?;
        fs::set_permissions(place.path(), fs::metadata("/usr")?.permissions())?;
        let output = Command::new(&auditor).args(arguments).uid(4242).gid(4242).output()?;
        expect(&output, NOT_SEEN, "Permission denied")?;
        let absent = Command::new(AUDITOR).args(["audit", "--tree", "4194304"]).output()?;
        expect(&absent, NOT_SEEN, "4194304")
    }),
    // The kernel shows filters only to a process that has none.
    ("auditor_under_filter_exits_with_2", || {
        let process = Running::start("controller", &[])?;
        let mut auditor = Command::new(std::env::current_exe()?);
        auditor.args([STAND_IN, "auditor-under-filter", AUDITOR]);
        auditor.args(["audit", "--pid", &process.pid(), "--as", "controller"]);
        expect(&auditor.output()?, NOT_SEEN, "filters, whose content is not shown: ")
    }),
    ("audited_process_keeps_its_signals", || {
        for _ in 0..20 {
            let mut process = Running::start("controller", &[])?;
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
        let mut process = Running::start("controller", &[])?;
        process.signal(Signal::STOP)?;
        process.becomes_stopped()?;
        process.signal(Signal::TERM)?;
        process.audit_as("controller")?.is(AS_PROFILE, &[])?;
        process.becomes_stopped()?;
        process.signal(Signal::CONT)?;
        process.ended_by(Signal::TERM)
    }),
];

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

/// Compares the auditor's status, and looks for a word in its output.
pub(crate) fn expect(output: &Output, status: i32, word: &str) -> TestResult {
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
            let case = namespace::CASES.iter().find(|(known, _)| *known == name);
            return outcome(&case.map_or_else(|| Err("no such case".into()), |(_, case)| case()));
        }
        _ => {}
    }
    harness::run(CASES.iter().chain(hostile::CASES).copied())
}
