//! The real program as a process.

#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs::Permissions;
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

const PROGRAM: &str = env!("CARGO_BIN_EXE_ebs-csi-node-agent");

pub(crate) fn program() -> Command {
    without_environment(PROGRAM)
}

fn without_environment(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null());
    command
}

/// What the program finds around it: a directory for sockets, an instance metadata service and a
/// mount-helper.
pub(crate) struct Host {
    pub(crate) metadata: MetadataService,
    pub(crate) helper: Option<ScriptedHelper>,
    dir: tempfile::TempDir,
}

impl Host {
    /// Returns `None`, and prints the reason, where the program cannot give up root.
    pub(crate) fn new() -> Option<Self> {
        is_root().then(|| Self::with(MetadataService::usual()))
    }

    pub(crate) fn with(metadata: MetadataService) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The program's own user enters the directory.
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let mut host = Self { metadata, helper: None, dir };
        host.restart_helper();
        host
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn helper(&self) -> &ScriptedHelper {
        self.helper.as_ref().expect("a running helper")
    }

    /// Ends the mount-helper and starts another one.
    pub(crate) fn restart_helper(&mut self) {
        self.helper = None;
        let path = self.path().join("helper.sock");
        self.helper = Some(ScriptedHelper::start(&path, Greeting::Usual));
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    }

    /// Starts the program as root.
    pub(crate) fn start(&self, arguments: &[&str]) -> Agent {
        Agent::run(program(), self, arguments)
    }

    /// Starts the program as root, and waits until it answers.
    pub(crate) async fn serve(&self, arguments: &[&str]) -> Agent {
        let mut agent = self.start(arguments);
        agent.ready().await;
        agent
    }

    pub(crate) fn start_as(&self, user: u32, arguments: &[&str]) -> Agent {
        use std::os::unix::process::CommandExt;
        // The other user may not be allowed to enter the directory where the program was built.
        let reachable = self.path().join("ebs-csi-node-agent");
        // By another process: a child that another test starts meanwhile would inherit the
        // descriptor of a copy made here, and the kernel runs no file that is open for writing.
        let copied = Command::new("cp").arg(PROGRAM).arg(&reachable).status();
        assert!(copied.unwrap().success());
        let mut command = without_environment(reachable);
        command.uid(user).gid(user);
        Agent::run(command, self, arguments)
    }

    /// Starts the program as root, but without the capability to become another user.
    pub(crate) fn start_without_setuid(&self, arguments: &[&str]) -> Agent {
        let mut command = without_environment("setpriv");
        command
            .args(["--bounding-set=-setuid", "--inh-caps=-setuid", "--", PROGRAM])
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        Agent::run(command, self, arguments)
    }

    /// As user 0 with the group and capabilities of the agent's container.
    pub(crate) fn start_as_pod(&self, arguments: &[&str]) -> Agent {
        let mut command = without_environment("setpriv");
        command
            .arg("--bounding-set=-all,+setuid,+setgid,+setpcap")
            .arg(format!("--regid={}", NODE_AGENT.identity.gid))
            .args(["--clear-groups", PROGRAM]);
        Agent::run(command, self, arguments)
    }
}

/// Gives a file to the program's own user.
pub(crate) fn own(path: &Path) {
    let own = NODE_AGENT.identity;
    std::os::unix::fs::chown(path, Some(own.uid), Some(own.gid)).unwrap();
}

impl Agent {
    fn run(mut command: Command, host: &Host, arguments: &[&str]) -> Self {
        let dir = host.path();
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
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", host.metadata.url())
            .env("AWS_SECRET_ACCESS_KEY", "must-not-stay")
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, socket, log }
    }

    /// Waits until the program answers. Panics with the program's log when the program ends first.
    pub(crate) async fn ready(&mut self) {
        let mut identity = csi::identity_client::IdentityClient::new(world::channel(&self.socket));
        soon("an answer", async || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("ended with {status}: {}", self.log());
            }
            identity.probe(csi::ProbeRequest {}).await.ok()
        })
        .await;
    }

    /// Waits until a condition of a running program is true.
    pub(crate) async fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) {
        soon("the condition", async || {
            assert!(self.child.try_wait().unwrap().is_none(), "{}", self.log());
            condition(self).then_some(())
        })
        .await;
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

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) async fn end(&mut self) -> ExitStatus {
        soon("the end", async || self.child.try_wait().unwrap()).await
    }
}

pub(crate) fn is_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        println!("skipped: the program can only give up root when it is started as root");
    }
    root
}

/// Waits until somebody answers at a socket in kubelet's registration directory, and does what
/// kubelet does when it sees one.
pub(crate) async fn registered_soon(socket: &Path) -> PluginInfo {
    soon(&socket.display().to_string(), async || {
        let mut kubelet = RegistrationClient::new(world::channel(socket));
        let info = kubelet.get_info(InfoRequest {}).await.ok()?.into_inner();
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        kubelet.notify_registration_status(status).await.ok()?;
        Some(info)
    })
    .await
}

/// Repeats an attempt until it succeeds.
async fn soon<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(result) = attempt().await {
            return result;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "still waiting for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Tells the driver that kubelet refuses the registration.
pub(crate) async fn refused(socket: &Path, why: &str) {
    let status = RegistrationStatus { plugin_registered: false, error: why.to_owned() };
    let mut kubelet = RegistrationClient::new(world::channel(socket));
    kubelet.notify_registration_status(status).await.unwrap();
}

/// Returns an address of this machine at which no program listens.
pub(crate) fn free_address() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().to_string()
}

/// Returns the answer to an HTTP request.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
