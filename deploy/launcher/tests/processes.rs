//! The launcher as a process, beside programs that write down how they were run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};

/// Writes its arguments to `NAME.args` beside itself and waits; SIGTERM is noted in `NAME.term`.
const PROGRAM: &str = r#"#!/bin/sh
here=$(dirname "$0"); name=$(basename "$0")
trap 'echo > "$here/$name.term"; exit 0' TERM
echo $$ > "$here/$name.pid"
printf '%s\n' "$@" > "$here/$name.args.new"; mv "$here/$name.args.new" "$here/$name.args"
while :; do sleep 0.05; done
"#;

const PROGRAMS: [&str; 3] = [
    "ebs-csi-controller",
    "ebs-csi-node-agent",
    "ebs-csi-mount-helper",
];

/// Held while files are written that will be executed, and while a child is between fork and exec: a child that inherits the open
/// file would make its execution fail (ETXTBSY).
static WRITING_OR_STARTING: Mutex<()> = Mutex::new(());

fn exclusively() -> MutexGuard<'static, ()> {
    WRITING_OR_STARTING
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

struct Installed {
    directory: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let _alone = exclusively();
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(
            env!("CARGO_BIN_EXE_aws-ebs-csi-driver"),
            directory.path().join("aws-ebs-csi-driver"),
        )
        .unwrap();
        for name in PROGRAMS {
            let path = directory.path().join(name);
            fs::write(&path, PROGRAM).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self, arguments: &[&str]) -> Started {
        let mut arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        if matches!(arguments.first().map(String::as_str), Some("node" | "all")) {
            arguments.push(format!("--runtime-dir={}", self.path("sockets").display()));
        }
        let _alone = exclusively();
        let child = Command::new(self.path("aws-ebs-csi-driver"))
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(fs::File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        Started { child }
    }

    fn arguments(&self, program: &str) -> Vec<String> {
        let path = self.path(&format!("{program}.args"));
        wait_for(&path);
        fs::read_to_string(path)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn pid(&self, program: &str) -> i32 {
        fs::read_to_string(self.path(&format!("{program}.pid")))
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }
}

struct Started {
    child: Child,
}

impl Started {
    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn end(&mut self) -> i32 {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < until, "the launcher does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn wait_for(path: &Path) {
    let until = Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(Instant::now() < until, "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn mode_controller_becomes_the_controller_with_the_flags_as_they_are() {
    let installed = Installed::new();
    let started = installed.start(&["controller", "--endpoint", "unix:///x.sock", "--batching"]);
    assert_eq!(
        installed.arguments("ebs-csi-controller"),
        ["--endpoint", "unix:///x.sock", "--batching"]
    );
    assert_eq!(
        installed.pid("ebs-csi-controller"),
        started.pid(),
        "it runs in the launcher's place"
    );
    signal(started.pid(), Signal::TERM);
    wait_for(&installed.path("ebs-csi-controller.term"));
}

#[test]
fn mode_node_runs_two_processes_that_share_a_socket_and_sigterm_reaches_both() {
    let installed = Installed::new();
    let mut started = installed.start(&[
        "node",
        "--endpoint=unix:///x.sock",
        "--legacy-xfs",
        "--kubelet-root=/k",
    ]);
    let agent = installed.arguments("ebs-csi-node-agent");
    let helper = installed.arguments("ebs-csi-mount-helper");
    assert_eq!(agent[0], "--endpoint=unix:///x.sock");
    assert_eq!(agent[2], "--legacy-xfs");
    assert_eq!(helper[1], "--kubelet-root=/k");
    assert_eq!(
        agent[1].strip_prefix("--helper="),
        helper[0].strip_prefix("--listen=")
    );
    assert!(!installed.path("ebs-csi-controller.args").exists());
    signal(started.pid(), Signal::TERM);
    assert_eq!(started.end(), 0, "{}", installed.log());
    for name in ["ebs-csi-node-agent", "ebs-csi-mount-helper"] {
        assert!(installed.path(&format!("{name}.term")).exists(), "{name}");
    }
}

#[test]
fn the_end_of_one_process_ends_all_with_a_failure() {
    for victim in PROGRAMS {
        let installed = Installed::new();
        let socket = installed.path("csi.sock");
        let mut started =
            installed.start(&["all", &format!("--endpoint=unix://{}", socket.display())]);
        for name in PROGRAMS {
            installed.arguments(name);
        }
        wait_for(&socket);
        signal(installed.pid(victim), Signal::KILL);
        assert_ne!(started.end(), 0, "{victim}");
        for other in PROGRAMS.into_iter().filter(|name| *name != victim) {
            assert!(
                installed.path(&format!("{other}.term")).exists(),
                "{other} after {victim}"
            );
        }
    }
}

fn status(pid: i32) -> impl Fn(&str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    move |name| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
}

#[test]
fn launcher_and_router_keep_no_privilege_beyond_signals() {
    if !geteuid().is_root() {
        println!("skipped: giving up root needs root");
        return;
    }
    let installed = Installed::new();
    let socket = installed.path("csi.sock");
    let mut started = installed.start(&["all", &format!("--endpoint=unix://{}", socket.display())]);
    for name in PROGRAMS {
        installed.arguments(name);
    }
    wait_for(&socket);
    let children =
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", started.pid())).unwrap();
    let router = children
        .split_ascii_whitespace()
        .map(|pid| pid.parse().unwrap())
        .find(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .unwrap()
                .starts_with("aws-ebs-csi")
        })
        .expect("the router is a child of the launcher");
    for (pid, user, capabilities) in [(started.pid(), "65528", "20"), (router, "65529", "0")] {
        let until = Instant::now() + Duration::from_secs(30);
        while status(pid)("Uid").split('\t').next() != Some(user) {
            assert!(Instant::now() < until, "{pid} does not become {user}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = status(pid);
        assert_eq!(status("Uid"), [user; 4].join("\t"));
        assert_eq!(status("Gid"), [user; 4].join("\t"));
        assert_eq!(status("Groups"), "");
        assert_eq!(status("NoNewPrivs"), "1");
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(
                status(set).trim_start_matches('0').to_owned(),
                capabilities.trim_start_matches('0'),
                "{set} of {user}"
            );
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(status(set).trim_start_matches('0'), "", "{set} of {user}");
        }
    }
    signal(started.pid(), Signal::TERM);
    assert_eq!(started.end(), 0, "{}", installed.log());
}

#[test]
fn bad_usage_is_one_line_and_64_and_a_missing_program_is_named() {
    let installed = Installed::new();
    for arguments in [
        &["nonsense"][..],
        &["node", "--nonsense"],
        &["all", "--endpoint=http://x"],
    ] {
        let mut started = installed.start(arguments);
        assert_eq!(started.end(), 64, "{arguments:?}");
        assert_eq!(installed.log().lines().count(), 1, "{}", installed.log());
    }
    fs::remove_file(installed.path("ebs-csi-controller")).unwrap();
    let mut started = installed.start(&["controller"]);
    assert_eq!(started.end(), 1);
    assert!(
        installed.log().contains("ebs-csi-controller"),
        "{}",
        installed.log()
    );
    for (arguments, says) in [
        (&["--version"][..], "driverVersion"),
        (&["--help"], "pre-stop-hook"),
    ] {
        let alone = exclusively();
        let child = Command::new(installed.path("aws-ebs-csi-driver"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(alone);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains(says));
    }
}
