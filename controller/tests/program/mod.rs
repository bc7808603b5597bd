//! Runs the controller as a process.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::identity_client::IdentityClient;
use tonic::transport::{Channel, Endpoint};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ebs-csi-controller");

/// Returns a command for the controller with an empty environment.
pub(crate) fn program() -> Command {
    command_of(Path::new(PROGRAM))
}

/// Returns such a command for another program, for example one that starts the controller.
pub(crate) fn command_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null());
    command
}

/// Runs the controller to its end. Returns the status, standard output and standard error.
pub(crate) fn run(
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    run_to_end(program().args(arguments).envs(environment.iter().copied()))
}

/// Runs a command to its end. Returns the status, standard output and standard error.
pub(crate) fn run_to_end(command: &mut Command) -> (Option<i32>, String, String) {
    to_texts(&command.output().expect("the program runs"))
}

/// Returns the status, standard output and standard error of a program that has ended.
pub(crate) fn to_texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Returns a free port, which the process binds a moment later.
pub(crate) fn port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address")
}

/// Keys that no log may show.
pub(crate) const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "AKIATEST"), ("AWS_SECRET_ACCESS_KEY", "do-not-print-me")];

/// A controller process, which is ended when the value is dropped.
pub(crate) struct Controller {
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
    pub(crate) http: Option<SocketAddr>,
    dir: tempfile::TempDir,
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Controller {
    /// Starts a controller with keys, at an endpoint that serves EC2 and STS.
    pub(crate) fn start(aws: &str, http: bool, extra_flags: &[&str]) -> Self {
        Self::with(aws, http, extra_flags, &KEYS)
    }

    /// Starts a controller with these variables in addition to the Region and the endpoint.
    pub(crate) fn with(
        aws: &str,
        http: bool,
        extra_flags: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("csi.sock");
        let http = http.then(port);
        let mut command = program();
        command
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .args(http.map(|address| format!("--http-endpoint={address}")))
            .args(extra_flags)
            .env("AWS_REGION", "us-east-1")
            .envs((!aws.is_empty()).then_some(("AWS_ENDPOINT_URL", aws)))
            .envs(environment.iter().copied())
            // A pipe that nobody reads during the test would block the program.
            .stderr(std::fs::File::create(dir.path().join("log")).expect("a log"));
        let child = command.spawn().expect("the program starts");
        Self { child, socket, http, dir }
    }

    pub(crate) async fn channel(&self) -> Channel {
        let endpoint =
            Endpoint::try_from(format!("unix://{}", self.socket.display())).expect("an address");
        let start = Instant::now();
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) if start.elapsed() > Duration::from_secs(20) => {
                    panic!("no socket: {error}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let stream =
            TcpStream::connect(self.http.expect("served")).expect("the HTTP endpoint accepts");
        get(stream, path)
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    }

    /// Sends SIGTERM and waits. Returns the exit status and the log.
    pub(crate) fn stop(mut self) -> (ExitStatus, String) {
        self.terminate();
        let status = self.child.wait().expect("it ends");
        (status, self.log())
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).expect("text")
    }
}

/// Makes one request over any stream. Returns the status and the whole answer.
pub(crate) fn get(mut stream: impl Read + Write, path: &str) -> (u16, String) {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, answer)
}

pub(crate) async fn probe(channel: &Channel) -> Result<bool, tonic::Status> {
    let answer = IdentityClient::new(channel.clone()).probe(csi::ProbeRequest {}).await?;
    Ok(answer.into_inner().ready.unwrap_or_default())
}

/// Returns a create request for a mounted volume of this size in GiB.
pub(crate) fn volume(name: &str, gib: i64) -> csi::CreateVolumeRequest {
    use csi::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
    csi::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::CapacityRange { required_bytes: gib << 30, limit_bytes: 0 }),
        volume_capabilities: vec![csi::VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }],
        ..Default::default()
    }
}
