//! The real program as a process.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ebs_csi_policy::profile::NODE_AGENT;
use ebs_csi_proto::csi;
use ebs_csi_proto::pluginregistration::registration_client::RegistrationClient;
use ebs_csi_proto::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::metadata_service::MetadataService;
use crate::scripted_helper::{Greeting, ScriptedHelper};
use crate::world;

/// A running program, which is killed when the test ends first.
pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
    log: PathBuf,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebs-csi-node-agent"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// Creates a directory that the program's own user may enter.
pub(crate) fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

pub(crate) fn helper(dir: &Path) -> ScriptedHelper {
    let path = dir.join("helper.sock");
    let helper = ScriptedHelper::start(&path, Greeting::Usual);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    helper
}

impl Agent {
    pub(crate) fn start(dir: &Path, metadata: &MetadataService, arguments: &[&str]) -> Self {
        Self::start_as(None, dir, metadata, arguments)
    }

    pub(crate) fn start_as(
        user: Option<u32>,
        dir: &Path,
        metadata: &MetadataService,
        arguments: &[&str],
    ) -> Self {
        use std::os::unix::process::CommandExt;
        let command = match user {
            None => program(),
            Some(user) => {
                // The other user may not be allowed to enter the directory where the program was
                // built.
                let reachable = dir.join("ebs-csi-node-agent");
                // By another process: a child that another test starts meanwhile would inherit the
                // descriptor of a copy made here, and the kernel runs no file that is open for
                // writing.
                let copied = Command::new("cp")
                    .arg(env!("CARGO_BIN_EXE_ebs-csi-node-agent"))
                    .arg(&reachable)
                    .status();
                assert!(copied.unwrap().success());
                let mut command = Command::new(reachable);
                command.env_clear().stdin(Stdio::null()).uid(user).gid(user);
                command
            }
        };
        Self::run(command, dir, metadata, arguments)
    }

    /// As user 0 with the group and capabilities of the agent's container.
    pub(crate) fn start_as_pod(dir: &Path, metadata: &MetadataService, arguments: &[&str]) -> Self {
        let mut command = Command::new("setpriv");
        command
            .env_clear()
            .stdin(Stdio::null())
            .arg("--bounding-set=-all,+setuid,+setgid,+setpcap")
            .arg(format!("--regid={}", NODE_AGENT.identity.gid))
            .args(["--clear-groups", env!("CARGO_BIN_EXE_ebs-csi-node-agent")]);
        Self::run(command, dir, metadata, arguments)
    }

    fn run(
        mut command: Command,
        dir: &Path,
        metadata: &MetadataService,
        arguments: &[&str],
    ) -> Self {
        let socket = dir.join("csi.sock");
        let log = ["log", "log-2"].map(|name| dir.join(name));
        let log = log.into_iter().find(|path| !path.exists()).unwrap();
        if !arguments.contains(&"--helper") {
            let scripted = format!("unix://{}", dir.join("helper.sock").display());
            command.args(["--helper", &scripted]);
        }
        let child = command
            .args(["--endpoint", &format!("unix://{}", socket.display())])
            .args(arguments)
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url())
            .env("AWS_SECRET_ACCESS_KEY", "must-not-stay")
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, socket, log }
    }

    /// Starts the program as root, but without the capability to become another user.
    pub(crate) fn start_without_setuid(
        dir: &Path,
        metadata: &MetadataService,
        arguments: &[&str],
    ) -> Self {
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set=-setuid", "--inh-caps=-setuid", "--"])
            .arg(env!("CARGO_BIN_EXE_ebs-csi-node-agent"))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        Self::run(command, dir, metadata, arguments)
    }

    /// Waits until the program answers. Panics with the program's log when the program ends first.
    pub(crate) async fn answers(&mut self) {
        let started = Instant::now();
        loop {
            let mut identity =
                csi::identity_client::IdentityClient::new(world::channel(&self.socket));
            if identity.probe(csi::ProbeRequest {}).await.is_ok() {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("ended with {status}: {}", self.log());
            }
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "no answer: {}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Removes the log, so that another program can write one.
    pub(crate) fn forget_log(self) {
        std::fs::remove_file(&self.log).unwrap();
    }

    pub(crate) fn status(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap()
    }

    pub(crate) fn tell(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) async fn end(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "it does not end"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) fn is_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        println!("skipped: the program can only give up root when it is started as root");
    }
    root
}

/// Does what kubelet does when it sees a socket in its registration directory. Returns `None` while
/// nobody answers at the socket.
pub(crate) async fn registered(socket: &Path) -> Option<PluginInfo> {
    let mut kubelet = RegistrationClient::new(world::channel(socket));
    let info = kubelet.get_info(InfoRequest {}).await.ok()?.into_inner();
    kubelet
        .notify_registration_status(RegistrationStatus {
            plugin_registered: true,
            error: String::new(),
        })
        .await
        .ok()?;
    Some(info)
}

pub(crate) async fn registered_soon(socket: &Path) -> PluginInfo {
    let started = Instant::now();
    loop {
        if let Some(info) = registered(socket).await {
            return info;
        }
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "no answer at {}",
            socket.display()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Tells the driver that kubelet refuses the registration.
pub(crate) async fn refused(socket: &Path, why: &str) {
    let status = RegistrationStatus {
        plugin_registered: false,
        error: why.to_owned(),
    };
    RegistrationClient::new(world::channel(socket))
        .notify_registration_status(status)
        .await
        .unwrap();
}

/// Returns the answer to an HTTP request.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
