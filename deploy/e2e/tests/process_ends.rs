//! How each program exits when it is used wrongly or cannot be confined, and how the controller
//! answers without AWS.

use std::path::Path;
use std::time::Duration;

use csi::identity_client::IdentityClient;
use ebs_csi_e2e::Fixture;
use ebs_csi_e2e::program::{self, Ended};
use ebs_csi_proto::csi;
use ebs_csi_sandbox::binaries::{Binaries, for_test};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const PROGRAMS: [&str; 7] = [
    "ebs-csi-controller",
    "ebs-csi-node-agent",
    "ebs-csi-mount-helper",
    "aws-ebs-csi-driver",
    "ebs-csi-policy",
    "ebs-csi-sandbox",
    "ec2-sim",
];

/// Runs a program to its end.
fn run(binaries: &Binaries, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    program::run(program::bare(&binaries.path(name).unwrap(), arguments, environment))
}

/// What a program needs to get as far as its own flags.
const ENVIRONMENT: [(&str, &str); 2] = [("AWS_REGION", "us-east-1"), ("CSI_NODE_NAME", "n")];

#[test]
fn every_program_prints_help_and_version() {
    let Some(binaries) = for_test(&PROGRAMS) else { return };
    for name in PROGRAMS {
        for flag in ["--help", "--version"] {
            let ended = run(&binaries, name, &[flag], &[]);
            assert_eq!(ended.status, Some(0), "{name} {flag}: {ended:?}");
            assert!(!ended.stdout.trim().is_empty(), "{name} {flag}: {ended:?}");
        }
    }
}

#[test]
fn bad_command_line_exits_64_with_one_line() {
    let Some(binaries) = for_test(&PROGRAMS) else { return };
    let rows: &[(&str, &[&str], &str)] = &[
        ("ebs-csi-controller", &["--no-such-flag"], "no-such-flag"),
        ("ebs-csi-controller", &["--endpoint", "ftp://x"], "endpoint"),
        ("ebs-csi-controller", &["--drain-timeout", "soon"], "soon"),
        ("ebs-csi-controller", &["surplus"], "surplus"),
        ("ebs-csi-node-agent", &["--no-such-flag"], "no-such-flag"),
        ("ebs-csi-node-agent", &["--endpoint", "ftp://x"], "endpoint"),
        ("ebs-csi-node-agent", &["--helper", "tcp://127.0.0.1:1"], "helper"),
        ("ebs-csi-node-agent", &["--metadata-sources", "guess"], "guess"),
        ("ebs-csi-mount-helper", &[], "--listen"),
        ("ebs-csi-mount-helper", &["--no-such-flag"], "no-such-flag"),
        (
            "ebs-csi-mount-helper",
            &["--listen=unix:///x", "--kubelet-root=/a/../b"],
            "--kubelet-root",
        ),
        ("aws-ebs-csi-driver", &["conductor"], "conductor"),
        ("aws-ebs-csi-driver", &["controller", "--no-such-flag"], "no-such-flag"),
        ("aws-ebs-csi-driver", &["node", "--no-such-flag"], "no-such-flag"),
        ("ebs-csi-policy", &["audit"], ""),
        ("ebs-csi-sandbox", &["--no-such-flag"], "no-such-flag"),
        ("ec2-sim", &["serve", "--no-such-flag"], "no-such-flag"),
    ];
    let mut wrong = Vec::new();
    for (name, arguments, word) in rows {
        let ended = run(&binaries, name, arguments, &ENVIRONMENT);
        let lines = ended.stderr.trim_end().lines().count();
        if ended.status != Some(64) || lines != 1 || !ended.stderr.contains(word) {
            wrong.push(format!("{name} {arguments:?}: {ended:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Flags that the launcher itself sets to connect the processes.
const OF_THE_LAUNCHER: [&str; 2] = ["helper", "listen"];

#[test]
fn launcher_knows_every_flag_of_its_processes() {
    let Some(binaries) = for_test(&PROGRAMS) else { return };
    let mut unknown = Vec::new();
    for name in ["ebs-csi-controller", "ebs-csi-node-agent", "ebs-csi-mount-helper"] {
        let help = run(&binaries, name, &["--help"], &[]);
        let flags: Vec<&str> = help
            .stdout
            .lines()
            .filter_map(|line| {
                let words = line.trim_start();
                let flag = words.strip_prefix("--").or_else(|| words.strip_prefix("-v, --"))?;
                flag.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
                    .next()
            })
            .collect();
        assert!(flags.len() > 5, "{name}: {help:?}");
        for flag in flags {
            // The launcher refuses the last argument in any case, so it starts nothing.
            let arguments = ["node", &format!("--{flag}=1"), "--no-such-flag"];
            let ended = run(&binaries, "aws-ebs-csi-driver", &arguments, &[]);
            let is_unknown = ended.stderr.contains(&format!("unknown flag --{flag};"));
            if is_unknown && !OF_THE_LAUNCHER.contains(&flag) {
                unknown.push(format!("{name} --{flag}"));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

/// The helper cannot confine itself without CAP_SYS_ADMIN, CAP_SETUID or CAP_SETPCAP.
#[test]
fn helper_missing_capability_exits_77_without_serving() {
    let Some(binaries) = for_test(&PROGRAMS) else { return };
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        println!("skipped: setpriv(1) of util-linux is not there");
        return;
    }
    let helper = binaries.path("ebs-csi-mount-helper").unwrap();
    let own = tempfile::tempdir_in("/tmp").unwrap();
    let root = own.path().join("kubelet");
    for made in ["plugins", "pods"] {
        std::fs::create_dir_all(root.join(made)).unwrap();
    }
    let socket = own.path().join("s.sock");
    let listen = format!("unix://{}", socket.display());
    let flags = ["--listen", &listen, "--sandbox", "--allow-private-mounts", "--kubelet-root"];
    for capability in ["sys_admin", "setuid", "setpcap"] {
        let without = format!("--bounding-set=-{capability}");
        let mut command = program::bare(setpriv, &[&without], &ENVIRONMENT);
        command.arg(&helper).args(flags).arg(&root);
        let ended = program::run(command);
        assert_eq!(ended.status, Some(77), "{capability}: {ended:?}");
        assert!(!ended.stderr.trim().is_empty(), "{capability}: {ended:?}");
        let connected = std::os::unix::net::UnixStream::connect(&socket);
        assert!(connected.is_err(), "{capability}: somebody serves");
        let _ = std::fs::remove_file(&socket);
    }
}

async fn identity(socket: &Path) -> IdentityClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    for _ in 0..2_000 {
        if let Ok(channel) = endpoint.connect().await {
            return IdentityClient::new(channel);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} does not answer in 10 s", socket.display());
}

/// A program that is killed when the test ends.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process serves without credentials or EC2; without a Region it exits with 78.
#[tokio::test]
async fn probe_of_controller_without_aws_names_cause() {
    let Some(binaries) = for_test(&["ebs-csi-controller"]) else { return };
    let program = binaries.path("ebs-csi-controller").unwrap();
    let keys = [("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "example")];
    let base = [
        ("AWS_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        // No process listens on this port.
        ("AWS_EC2_ENDPOINT", "http://127.0.0.1:9"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    ];
    for (what, environment, word) in [
        ("no credentials", base.to_vec(), "credential"),
        ("EC2 unreachable", [&base[..], &keys].concat(), "aws_ec2_endpoint"),
    ] {
        let own = tempfile::tempdir_in("/tmp").unwrap();
        let socket = own.path().join("csi.sock");
        let endpoint = format!("unix://{}", socket.display());
        let mut command = program::bare(&program, &["--endpoint", &endpoint], &environment);
        command.stderr(std::process::Stdio::null());
        let _running = Running(command.spawn().unwrap());
        let refused = identity(&socket).await.probe(csi::ProbeRequest {}).await.expect_err(what);
        println!("{what}: {:?}: {}", refused.code(), refused.message());
        assert_eq!(refused.code(), Code::FailedPrecondition, "{what}: {refused}");
        assert!(refused.message().to_lowercase().contains(word), "{what}: no {word:?}: {refused}");
    }
    // Without a Region, the controller cannot know which endpoint to call.
    let arguments = ["--endpoint", "unix:///tmp/ebs-csi-e2e-never.sock"];
    let ended = run(&binaries, "ebs-csi-controller", &arguments, &base[1..]);
    assert!(matches!(ended.status, Some(78)) && ended.stderr.contains("AWS_REGION"), "{ended:?}");
}

#[tokio::test]
async fn controller_started_during_ec2_outage_becomes_ready() {
    let Some(mut fixture) = Fixture::with(|options| options.devices = "none".to_owned()).await
    else {
        return;
    };
    fixture.world.controller.kill().await.unwrap();
    fixture.requests().outage(2_000).await;
    fixture.world.controller.start().unwrap();
    let mut client = identity(fixture.world.controller_socket()).await;
    let refused = client.probe(csi::ProbeRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for _ in 0..1_000 {
        if client.probe(csi::ProbeRequest {}).await.is_ok() {
            fixture.finish().await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the controller is not ready\n{}", fixture.logs());
}
