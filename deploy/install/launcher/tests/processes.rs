//! Runs the launcher as a process. Scripts in place of the driver's programs record how they were
//! run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_ebs_csi_driver::route::Backend;
use ebs_csi_audit::Process;
use ebs_csi_policy::PRODUCTION;
use ebs_csi_policy::profile::{self, Profile};
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::identity_client::IdentityClient;
use ebs_csi_proto::csi::identity_server::IdentityServer;
use ebs_csi_proto::csi::node_client::NodeClient;
use ebs_csi_proto::identity::Identity;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio_stream::wrappers::UnixListenerStream;

/// Writes its arguments to `NAME.args` in its directory and waits; records SIGTERM in `NAME.term`.
const PROGRAM: &str = r#"#!/bin/sh
here=$(dirname "$0"); name=$(basename "$0")
trap 'echo > "$here/$name.term"; exit 0' TERM
echo $$ > "$here/$name.pid"
printf '%s\n' "$@" > "$here/$name.args.new"; mv "$here/$name.args.new" "$here/$name.args"
while :; do sleep 0.05; done
"#;

const PROGRAMS: [&str; 3] = ["ebs-csi-controller", "ebs-csi-node-agent", "ebs-csi-mount-helper"];

/// Held while files are written that will be executed, and while a child is between fork and exec:
/// executing a file fails with ETXTBSY while a child has inherited it open for writing.
static WRITING_OR_STARTING: Mutex<()> = Mutex::new(());

fn lock_writing_or_starting() -> MutexGuard<'static, ()> {
    WRITING_OR_STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Installed {
    directory: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let _lock = lock_writing_or_starting();
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let launcher = env!("CARGO_BIN_EXE_aws-ebs-csi-driver");
        fs::copy(launcher, directory.path().join("aws-ebs-csi-driver")).unwrap();
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
        self.run(&mut Command::new(self.path("aws-ebs-csi-driver")), arguments)
    }

    /// Starts mode `all` and waits until each program runs and the socket is served.
    fn start_all(&self, configure: impl FnOnce(&mut Command)) -> Started {
        let socket = self.path("csi.sock");
        let endpoint = format!("--endpoint=unix://{}", socket.display());
        let mut command = Command::new(self.path("aws-ebs-csi-driver"));
        configure(&mut command);
        let started = self.run(&mut command, &["all", &endpoint]);
        for name in PROGRAMS {
            self.arguments(name);
        }
        wait_for(&socket);
        started
    }

    /// Starts the launcher through the program `before`, which takes a privilege from it first.
    fn start_under(&self, before: &[&str], arguments: &[&str]) -> Started {
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(self.path("aws-ebs-csi-driver"));
        self.run(&mut command, arguments)
    }

    fn run(&self, command: &mut Command, arguments: &[&str]) -> Started {
        let own = format!("--runtime-dir={}", self.path("sockets").display());
        let own = matches!(arguments[0], "node" | "all").then_some(own);
        let _lock = lock_writing_or_starting();
        let child = command
            .args(arguments)
            .args(own)
            .stdin(Stdio::null())
            .stderr(fs::File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        Started { child }
    }

    fn arguments(&self, program: &str) -> Vec<String> {
        let path = self.path(&format!("{program}.args"));
        wait_for(&path);
        fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
    }

    fn pid(&self, program: &str) -> i32 {
        fs::read_to_string(self.path(&format!("{program}.pid"))).unwrap().trim().parse().unwrap()
    }

    /// Sends SIGTERM to a launcher once it handles signals.
    fn terminate(&self, started: &Started) {
        wait_until("the launcher handles signals", || self.log().contains("are passed on"));
        signal(started.pid(), Signal::TERM);
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

    fn wait_for_exit(&mut self) -> i32 {
        wait_until("the launcher ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code().unwrap_or(-1)
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

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for(path: &Path) {
    wait_until(&path.display().to_string(), || path.exists());
}

#[test]
fn controller_mode_execs_controller_with_unchanged_flags() {
    let installed = Installed::new();
    let started = installed.start(&["controller", "--endpoint", "unix:///x.sock", "--batching"]);
    let arguments = installed.arguments("ebs-csi-controller");
    assert_eq!(arguments, ["--endpoint", "unix:///x.sock", "--batching"]);
    assert_eq!(installed.pid("ebs-csi-controller"), started.pid());
    signal(started.pid(), Signal::TERM);
    wait_for(&installed.path("ebs-csi-controller.term"));
}

#[test]
fn node_mode_starts_agent_and_helper_forwards_sigterm() {
    let installed = Installed::new();
    let flags = ["node", "--endpoint=unix:///x.sock", "--legacy-xfs", "--kubelet-root=/k"];
    let mut started = installed.start(&flags);
    let agent = installed.arguments("ebs-csi-node-agent");
    let helper = installed.arguments("ebs-csi-mount-helper");
    assert_eq!(agent[0], "--endpoint=unix:///x.sock");
    assert_eq!(agent[2], "--legacy-xfs");
    assert_eq!(helper[1], "--kubelet-root=/k");
    assert_eq!(agent[1].strip_prefix("--helper="), helper[0].strip_prefix("--listen="));
    assert!(!installed.path("ebs-csi-controller.args").exists());
    installed.terminate(&started);
    assert_eq!(started.wait_for_exit(), 0, "{}", installed.log());
    for name in ["ebs-csi-node-agent", "ebs-csi-mount-helper"] {
        assert!(installed.path(&format!("{name}.term")).exists(), "{name}");
    }
}

#[test]
fn killed_process_stops_others_and_fails_launcher() {
    for killed in PROGRAMS {
        let installed = Installed::new();
        let mut started = installed.start_all(|_| ());
        signal(installed.pid(killed), Signal::KILL);
        assert_ne!(started.wait_for_exit(), 0, "{killed}");
        for other in PROGRAMS.into_iter().filter(|name| *name != killed) {
            assert!(installed.path(&format!("{other}.term")).exists(), "{other} after {killed}");
        }
    }
}

/// Returns the process ids of the children of `pid`, the router among them.
fn children(pid: i32) -> Vec<i32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap()
        .split_ascii_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// Waits until a process matches its profile. Returns the deviations that the auditor reports last.
fn wait_until_confined(pid: i32, profile: &'static Profile) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let process = Process::read(u32::try_from(pid).unwrap()).unwrap();
        let found: Vec<String> =
            process.deviations(profile, PRODUCTION).iter().map(ToString::to_string).collect();
        if found.is_empty() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Neither process has the controller's AWS credential in its environment.
#[test]
fn launcher_and_router_match_their_confinement_profiles() {
    if !geteuid().is_root() {
        println!("skipped: giving up root needs root");
        return;
    }
    let installed = Installed::new();
    let mut started = installed.start_all(|command| {
        command.env("AWS_SECRET_ACCESS_KEY", "do-not-keep-me");
    });
    let is_driver_process = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.starts_with("aws-ebs-csi"))
    };
    let router = children(started.pid())
        .into_iter()
        .find(is_driver_process)
        .expect("the router is a child of the launcher");
    for (pid, profile) in [(started.pid(), profile::LAUNCHER), (router, profile::ROUTER)] {
        assert_eq!(wait_until_confined(pid, profile), [""; 0], "{}", profile.name);
        let tree = Process::tree(u32::try_from(pid).unwrap()).unwrap();
        let expected = tree[0].expected(&tree).map(|profile| profile.name);
        assert_eq!(expected, Some(profile.name), "the auditor knows it by itself");
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let has_credential = String::from_utf8_lossy(&environment).contains("do-not-keep-me");
        assert!(!has_credential, "{} has the controller's credential", profile.name);
    }
    // The controller did receive the variable, so the check above can find one.
    let environment = fs::read(format!("/proc/{}/environ", installed.pid("ebs-csi-controller")));
    assert!(String::from_utf8_lossy(&environment.unwrap()).contains("do-not-keep-me"));
    installed.terminate(&started);
    assert_eq!(started.wait_for_exit(), 0, "{}", installed.log());
}

/// Under its whole filter, the router accepts calls and connects to the processes behind it.
#[tokio::test(flavor = "multi_thread")]
async fn confined_router_passes_calls_on() {
    let installed = Installed::new();
    let mut started = installed.start_all(|_| ());
    let socket = installed.path("sockets/csi").join(Backend::Controller.socket());
    let behind = tokio::net::UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let identity = Identity::always_ready("behind the router");
    let server = tonic::transport::Server::builder().add_service(IdentityServer::new(identity));
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(behind)));
    let address = format!("unix://{}", installed.path("csi.sock").display());
    let mut client = IdentityClient::connect(address.clone()).await.unwrap();
    let info = client.get_plugin_info(csi::GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.vendor_version, "behind the router");
    let mut node = NodeClient::connect(address).await.unwrap();
    let answer = node.node_get_info(csi::NodeGetInfoRequest {}).await.unwrap_err();
    assert_eq!(answer.code(), tonic::Code::Unavailable, "{answer:?}");
    installed.terminate(&started);
    assert_eq!(started.wait_for_exit(), 0, "{}", installed.log());
}

/// Without CAP_SETPCAP no process can be confined: mode node leaves no agent or helper, and mode
/// router serves no socket.
#[test]
fn missing_setpcap_exits_77_and_leaves_no_process() {
    if !geteuid().is_root() || !Path::new("/usr/bin/setpriv").exists() {
        println!("skipped: needs root and setpriv(1) of util-linux");
        return;
    }
    let installed = Installed::new();
    let without_setpcap = ["/usr/bin/setpriv", "--bounding-set=-setpcap"];
    let mut started =
        installed.start_under(&without_setpcap, &["node", "--endpoint=unix:///x.sock"]);
    assert_eq!(started.wait_for_exit(), 77, "{}", installed.log());
    assert!(installed.log().contains("CAP_SETPCAP"), "{}", installed.log());
    for name in ["ebs-csi-node-agent", "ebs-csi-mount-helper"] {
        let gone = installed.path(&format!("{name}.args"));
        // A process that was killed before it recorded its arguments is not left, either.
        let is_left = || Path::new(&format!("/proc/{}", installed.pid(name))).exists();
        assert!(!gone.exists() || !is_left(), "{name} was left");
    }
    let socket = installed.path("csi.sock");
    let endpoint = format!("--endpoint=unix://{}", socket.display());
    let runtime = format!("--runtime-dir={}", installed.directory.path().display());
    let mut router = installed.start_under(&without_setpcap, &["router", &endpoint, &runtime]);
    assert_eq!(router.wait_for_exit(), 77, "{}", installed.log());
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_err(), "somebody serves");
}

/// As when somebody else made the path before, so that a link would lead the launcher to a
/// directory of root.
#[test]
fn linked_runtime_directory_exits_78_and_starts_nothing() {
    let installed = Installed::new();
    let victim = installed.path("victim");
    fs::create_dir(&victim).unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&victim, installed.path("sockets")).unwrap();
    let mut started = installed.start(&["node", "--endpoint=unix:///x.sock"]);
    assert_eq!(started.wait_for_exit(), 78, "{}", installed.log());
    assert!(installed.log().contains("is a link"), "{}", installed.log());
    assert!(PROGRAMS.iter().all(|name| !installed.path(&format!("{name}.pid")).exists()));
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "it made something there");
    assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn bad_usage_exits_64_missing_program_exits_1() {
    let installed = Installed::new();
    for arguments in [&["nonsense"][..], &["node", "--nonsense"], &["all", "--endpoint=http://x"]] {
        let mut started = installed.start(arguments);
        assert_eq!(started.wait_for_exit(), 64, "{arguments:?}");
        assert_eq!(installed.log().lines().count(), 1, "{}", installed.log());
    }
    fs::remove_file(installed.path("ebs-csi-controller")).unwrap();
    let mut started = installed.start(&["controller"]);
    assert_eq!(started.wait_for_exit(), 1);
    assert!(installed.log().contains("ebs-csi-controller"), "{}", installed.log());
    for (arguments, says) in [(&["--version"][..], "driverVersion"), (&["--help"], "pre-stop-hook")]
    {
        let lock = lock_writing_or_starting();
        let child = Command::new(installed.path("aws-ebs-csi-driver"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(lock);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains(says));
    }
}
