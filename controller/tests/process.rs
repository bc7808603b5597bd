//! The process itself: what it says and how it ends, what it keeps, and when Probe is good.

mod world;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::identity_client::IdentityClient;
use serde_json::json;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use world::World;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ebs-csi-controller");

/// Ended when the test is.
struct Controller {
    child: Child,
    socket: PathBuf,
    http: Option<SocketAddr>,
    _dir: tempfile::TempDir,
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_clear().stdin(Stdio::null());
    command
}

/// Runs to the end.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = program();
    command.args(arguments).envs(environment.iter().copied());
    let output = command.output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A free port; taken again by the process a moment later.
fn port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address")
}

impl Controller {
    fn start(ec2: &str, http: bool, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("csi.sock");
        let http = http.then(port);
        let mut command = program();
        command
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .args(http.map(|address| format!("--http-endpoint={address}")))
            .args(more)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", ec2)
            .env("AWS_ACCESS_KEY_ID", "AKIATEST")
            .env("AWS_SECRET_ACCESS_KEY", "do-not-print-me")
            .stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        Self {
            child,
            socket,
            http,
            _dir: dir,
        }
    }

    async fn channel(&self) -> Channel {
        let endpoint =
            Endpoint::try_from(format!("unix://{}", self.socket.display())).expect("an address");
        let begun = Instant::now();
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) if begun.elapsed() > Duration::from_secs(20) => {
                    panic!("no socket: {error}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut stream =
            TcpStream::connect(self.http.expect("served")).expect("the HTTP endpoint accepts");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .expect("a status");
        (status, answer)
    }

    /// SIGTERM, then the end and the log.
    fn stop(mut self) -> (ExitStatus, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().expect("piped");
        stderr.read_to_string(&mut log).expect("text");
        (self.child.wait().expect("it ends"), log)
    }
}

async fn probe(channel: &Channel) -> Result<bool, tonic::Status> {
    let answer = IdentityClient::new(channel.clone())
        .probe(csi::ProbeRequest {})
        .await?;
    Ok(answer.into_inner().ready.unwrap_or_default())
}

#[test]
fn a_bad_command_line_is_one_line_and_64() {
    for arguments in [
        vec!["--no-such"],
        vec!["--endpoint=x"],
        vec!["--volume-attach-limit=5"],
        vec!["--v=high"],
    ] {
        let (code, out, err) = run(&arguments, &[]);
        assert_eq!((code, out.as_str()), (Some(64), ""), "{arguments:?}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[test]
fn help_and_version_end_well() {
    let (code, out, _) = run(&["--version"], &[]);
    assert_eq!(code, Some(0));
    let version: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        version["driverVersion"],
        format!("v{}", env!("CARGO_PKG_VERSION"))
    );
    let (code, out, _) = run(&["--help"], &[]);
    assert!(code == Some(0) && out.contains("AWS_REGION"), "{out}");
}

#[test]
fn without_a_region_it_ends_with_78_and_names_the_setting() {
    let dir = tempfile::tempdir().expect("a directory");
    let endpoint = format!("--endpoint=unix://{}/csi.sock", dir.path().display());
    let nowhere = [("AWS_EC2_METADATA_DISABLED", "true")];
    let (code, _, err) = run(&[&endpoint], &nowhere);
    assert_eq!(code, Some(78), "{err}");
    assert!(
        err.lines()
            .last()
            .is_some_and(|line| line.contains("AWS_REGION")),
        "{err}"
    );
    let bad = [
        ("AWS_REGION", "us-east-1"),
        ("AWS_EC2_ENDPOINT", "nonsense"),
    ];
    let (code, _, err) = run(&[&endpoint], &bad);
    assert_eq!(code, Some(78), "{err}");
    assert!(err.contains("AWS_EC2_ENDPOINT"), "{err}");
}

#[test]
fn a_socket_that_cannot_be_bound_is_an_error() {
    let (code, _, err) = run(
        &["--endpoint=unix:///nonexistent/csi.sock"],
        &[("AWS_REGION", "us-east-1")],
    );
    assert_eq!(code, Some(1));
    assert!(err.contains("/nonexistent/csi.sock"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_serves_confined_counts_and_ends_when_told() {
    let world = World::new().await;
    let controller = Controller::start(&world.server.ec2(), true, &["--batching=true", "--v=5"]);
    let channel = controller.channel().await;
    assert!(probe(&channel).await.expect("ready"));

    let status = std::fs::read_to_string(format!("/proc/{}/status", controller.child.id()))
        .expect("its status");
    let field = |name: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        line.split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(
        (field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()),
        ("1", "2")
    );
    assert_ne!(field("Uid:"), "0");

    assert_eq!(controller.get("/healthz").0, 200);
    assert_eq!(controller.get("/readyz").0, 200);
    let (code, metrics) = controller.get("/metrics");
    assert_eq!(code, 200);
    for name in [
        "aws_ebs_csi_rpc_duration_seconds_count{method=\"Probe\",code=\"Ok\"} 1",
        "aws_ebs_csi_ec2_usable 1",
        "aws_ebs_csi_ec2_bucket_tokens{request=\"AttachVolume\"} 45.0",
    ] {
        assert!(metrics.contains(name), "{name}\n{metrics}");
    }
    assert_eq!(controller.get("/other").0, 404);

    let (ended, log) = controller.stop();
    assert_eq!(ended.code(), Some(0), "{log}");
    assert!(
        log.contains("SIGTERM") && log.contains("--batching has no meaning here"),
        "{log}"
    );
    assert!(!log.contains("do-not-print-me"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_starts_while_ec2_is_away_and_recovers() {
    let world = World::new().await;
    world.fault(json!({ "match": { "action": "DescribeAvailabilityZones" },
                        "fault": { "kind": "error", "code": "Unavailable", "status": 503 } }));
    let controller = Controller::start(&world.server.ec2(), true, &[]);
    let channel = controller.channel().await;
    let refused = probe(&channel).await.expect_err("not ready yet");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("Unavailable"), "{refused}");
    assert_eq!(controller.get("/readyz").0, 503);
    assert_eq!(controller.get("/healthz").0, 200);
    world.no_faults();
    let begun = Instant::now();
    while probe(&channel).await.is_err() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "it did not recover"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(controller.get("/readyz").0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_shows_in_probe() {
    let world = World::new().await;
    world.fault(json!({ "match": { "action": "DescribeAvailabilityZones" },
                        "fault": { "kind": "error", "code": "UnauthorizedOperation", "status": 403, "message": "No." } }));
    let controller = Controller::start(&world.server.ec2(), false, &[]);
    let refused = probe(&controller.channel().await)
        .await
        .expect_err("not allowed");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let text = refused.message();
    assert!(
        text.contains("ec2:DescribeAvailabilityZones") && text.contains("IAM"),
        "{text}"
    );
}

#[test]
fn a_second_process_takes_over_the_socket_of_one_that_was_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket: &Path = &dir.path().join("csi.sock");
    drop(std::os::unix::net::UnixListener::bind(socket).expect("a stale socket"));
    let mut child = program()
        .arg(format!("--endpoint=unix://{}", socket.display()))
        .arg("--probe-aws=never")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_EC2_ENDPOINT", "http://127.0.0.1:1")
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let log = BufReader::new(child.stderr.take().expect("piped"));
    let serving = log
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains("serving CSI"));
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(serving);
}
