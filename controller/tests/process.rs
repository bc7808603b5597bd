//! The process: its output and exit, its state across restarts, and the result of Probe.

#[path = "../../proto/tests/flood/mod.rs"]
mod flood;
mod program;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_client::ControllerClient;
use ebs_csi_proto::csi::identity_client::IdentityClient;
use ebs_csi_proto::http_endpoint::MAX_CONNECTIONS;
use ebs_csi_proto::safe_detach::instance_types_client::InstanceTypesClient;
use ebs_csi_proto::safe_detach::safe_detach_client::SafeDetachClient;
use ebs_csi_proto::safe_detach::{
    AttachLimitsRequest, BreakGlassRequest, QueryInstancesRequest, Subject,
};
use program::{Controller, KEYS, probe, program, run, volume};
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;
use world::World;

#[test]
fn help_and_version_exit_0() {
    let (code, out, _) = run(&["--version"], &[]);
    assert_eq!(code, Some(0));
    let version: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(version["driverVersion"], format!("v{}", env!("CARGO_PKG_VERSION")));
    let (code, out, _) = run(&["--help"], &[]);
    assert!(code == Some(0) && out.contains("AWS_REGION"), "{out}");
}

#[test]
fn missing_region_or_bad_endpoint_exits_78() {
    let dir = tempfile::tempdir().expect("a directory");
    let endpoint = format!("--endpoint=unix://{}/csi.sock", dir.path().display());
    let nowhere = [("AWS_EC2_METADATA_DISABLED", "true")];
    let (code, _, err) = run(&[&endpoint], &nowhere);
    assert_eq!(code, Some(78), "{err}");
    assert!(err.lines().last().is_some_and(|line| line.contains("AWS_REGION")), "{err}");
    let bad = [("AWS_REGION", "us-east-1"), ("AWS_EC2_ENDPOINT", "nonsense")];
    let (code, _, err) = run(&[&endpoint], &bad);
    assert_eq!(code, Some(78), "{err}");
    assert!(err.contains("AWS_EC2_ENDPOINT"), "{err}");
}

#[test]
fn unusable_ca_bundle_exits_78() {
    let dir = tempfile::tempdir().expect("a directory");
    let endpoint = format!("--endpoint=unix://{}/csi.sock", dir.path().display());
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_string_lossy().into_owned()
    };
    let armour =
        |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    for bundle in [
        dir.path().join("missing").to_string_lossy().into_owned(),
        file("empty", ""),
        file("broken", &armour("%%")),
        file("other", &armour("AAAA")),
    ] {
        let environment = [("AWS_REGION", "us-east-1"), ("AWS_CA_BUNDLE", &bundle)];
        let (code, _, err) = run(&[&endpoint], &environment);
        assert_eq!(code, Some(78), "{err}");
        assert!(err.contains("AWS_CA_BUNDLE") && err.contains(&bundle), "{err}");
    }
}

/// A link to a directory, and a file of the kernel: both would open more than a setting may.
#[test]
fn credential_file_out_of_bounds_exits_78() {
    let dir = tempfile::tempdir().expect("a directory");
    let endpoint = format!("--endpoint=unix://{}/csi.sock", dir.path().display());
    std::os::unix::fs::symlink("/", dir.path().join("cfg")).expect("a link");
    let file = |path: &str| dir.path().join(path).display().to_string();
    for (variable, path, leads_to) in [
        ("AWS_CONFIG_FILE", file("cfg"), " / "),
        ("AWS_SHARED_CREDENTIALS_FILE", file("cfg/proc/version"), " /proc/version "),
    ] {
        let environment = [("AWS_REGION", "us-east-1"), (variable, &path)];
        let (code, _, err) = run(&[&endpoint], &environment);
        assert_eq!(code, Some(78), "{err}");
        assert!(err.contains(variable) && err.contains(leads_to), "{err}");
    }
}

/// The thread of a name look-up has an own part of mimalloc's memory, for which mimalloc asks on
/// which NUMA node the thread runs. The variable stands for a machine that has two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_is_looked_up_on_two_numa_nodes() {
    let world = World::new().await;
    let ec2 = world.server.ec2().replace("127.0.0.1", "localhost");
    assert!(ec2.contains("localhost"), "{ec2}");
    let environment = [KEYS[0], KEYS[1], ("MIMALLOC_USE_NUMA_NODES", "2")];
    let controller = Controller::with(&ec2, false, &[], &environment);
    assert!(probe(&controller.channel().await).await.expect("ready"));
    let (ended, log) = controller.stop();
    assert_eq!(ended.code(), Some(0), "{log}");
}

#[test]
fn unbindable_socket_exits_1_and_is_named() {
    let (code, _, err) =
        run(&["--endpoint=unix:///nonexistent/csi.sock"], &[("AWS_REGION", "us-east-1")]);
    assert_eq!(code, Some(1));
    assert!(err.contains("/nonexistent/csi.sock"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confined_controller_serves_metrics_and_exits_on_sigterm() {
    let world = World::new().await;
    let controller = Controller::start(&world.server.ec2(), true, &["--batching=true", "--v=5"]);
    let channel = controller.channel().await;
    assert!(probe(&channel).await.expect("ready"));

    let status = std::fs::read_to_string(format!("/proc/{}/status", controller.child.id()))
        .expect("its status");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", "2"));
    assert_ne!(field("Uid:"), "0");

    assert_eq!(controller.get("/healthz").0, 200);
    assert_eq!(controller.get("/readyz").0, 200);
    let (code, metrics) = controller.get("/metrics");
    assert_eq!(code, 200);
    for name in [
        "aws_ebs_csi_rpc_duration_seconds_count{method=\"Probe\",code=\"OK\"} 1",
        "aws_ebs_csi_ec2_usable 1",
        "aws_ebs_csi_ec2_bucket_tokens{request=\"AttachVolume\"} 45.0",
    ] {
        assert!(metrics.contains(name), "{name}\n{metrics}");
    }
    // This client does not ask for OpenMetrics.
    assert!(metrics.contains("version=0.0.4") && !metrics.contains("# EOF"));
    assert_eq!(controller.get("/other").0, 404);

    let (ended, log) = controller.stop();
    assert_eq!(ended.code(), Some(0), "{log}");
    assert!(log.contains("SIGTERM") && log.contains("--batching has no meaning here"), "{log}");
    assert!(!log.contains("do-not-print-me"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn number_of_http_connections_is_bounded() {
    let world = World::new().await;
    let controller = Controller::start(&world.server.ec2(), true, &[]);
    assert!(probe(&controller.channel().await).await.expect("ready"));
    let address = controller.http.expect("served");
    let at_rest = flood::sockets(controller.child.id());
    for (count, sent) in flood::FLOODS {
        let held = flood::hold(address, count, sent);
        assert_eq!(flood::answered_of_20_probes(address), 20, "{count} {sent:?}");
        let more = flood::sockets(controller.child.id()).saturating_sub(at_rest);
        // One of them may be about to close.
        assert!(more <= MAX_CONNECTIONS + 1, "{count} {sent:?}: {more} more sockets");
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controller_starts_unready_without_ec2_then_recovers() {
    let world = World::new().await;
    world.refuse("DescribeAvailabilityZones", "Unavailable", 503);
    let controller = Controller::start(&world.server.ec2(), true, &[]);
    let channel = controller.channel().await;
    let refused = probe(&channel).await.expect_err("not ready yet");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("Unavailable"), "{refused}");
    // Every pod can read the page; only the log and Probe have the cause.
    let (code, page) = controller.get("/readyz");
    assert!(code == 503 && page.contains("log") && !page.contains("ec2:"), "{page}");
    assert!(controller.log().contains("ec2:DescribeAvailabilityZones"));
    assert_eq!(controller.get("/healthz").0, 200);
    world.clear_faults();
    wait_until_ready(&channel).await;
    assert_eq!(controller.get("/readyz").0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controller_started_during_outage_becomes_ready() {
    let world = World::new().await;
    world.post("/v1/outage", &json!({ "for_ms": 2_000 }));
    let controller = Controller::start(&world.server.ec2(), false, &[]);
    let channel = controller.channel().await;
    let refused = probe(&channel).await.expect_err("not ready yet");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    wait_until_ready(&channel).await;
}

async fn wait_until_ready(channel: &Channel) {
    let start = Instant::now();
    while probe(channel).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(30), "it did not recover");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_names_missing_credentials_or_unreachable_ec2() {
    // No process listens on this port.
    let nowhere = "http://127.0.0.1:9";
    let base = [("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_EC2_ENDPOINT", nowhere)];
    for (keys, word) in [(&[][..], "credential"), (&KEYS, "aws_ec2_endpoint")] {
        let controller = Controller::with(nowhere, false, &[], &[&base, keys].concat());
        let refused = probe(&controller.channel().await).await.expect_err("not ready");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().to_lowercase().contains(word), "{word}: {refused}");
    }
}

/// A killed process leaves its socket file behind.
#[test]
fn stale_socket_is_taken_over() {
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
    let server = log.lines().map_while(Result::ok).any(|line| line.contains("serving CSI"));
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(server);
}

#[test]
fn failed_confinement_exits_77_and_serves_nothing() {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/setpriv").exists() {
        println!("skipped: needs root and setpriv(1) of util-linux");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("csi.sock");
    for missing in ["setpcap", "setuid", "setgid"] {
        let mut command = program::command_of(Path::new("/usr/bin/setpriv"));
        command
            .arg(format!("--bounding-set=-{missing}"))
            .arg(program::PROGRAM)
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .env("AWS_REGION", "us-east-1");
        let (code, _, err) = program::run_to_end(&mut command);
        assert_eq!(code, Some(77), "{missing}: {err}");
        assert!(err.to_uppercase().contains("CAP_SET"), "{missing}: {err}");
        assert!(
            std::os::unix::net::UnixStream::connect(&socket).is_err(),
            "{missing}: somebody serves"
        );
    }
}

/// Terminates a controller during a CreateVolume that takes so long in EC2. The controller then
/// exits with 0. Returns whether the call was answered, and the log.
async fn terminate_during_create(millis: u64, flags: &[&str]) -> (bool, String) {
    let slow = json!({ "profile": "instant", "latency": { "api": { "CreateVolume": { "fixed_ms": millis } } } });
    let world = World::with(slow, ebs_csi_ec2::Ec2Settings::default()).await;
    let mut controller = Controller::start(&world.server.ec2(), true, flags);
    let channel = controller.channel().await;
    assert!(probe(&channel).await.expect("ready"));
    let mut csi = ControllerClient::new(channel);
    let call = tokio::spawn(async move { csi.create_volume(volume("pvc-last", 4)).await });
    wait_for_call(&controller, "CreateVolume").await;
    controller.terminate();
    let answer = call.await.expect("no panic");
    let ended = controller.child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(0), "{}", controller.log());
    (answer.is_ok_and(|made| made.into_inner().volume.is_some()), controller.log())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_call_is_answered_before_sigterm_exit() {
    let (answered, log) = terminate_during_create(1500, &[]).await;
    assert!(answered, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_beyond_drain_timeout_is_cut_off() {
    let (answered, log) = terminate_during_create(12_000, &["--drain-timeout=500ms"]).await;
    assert!(!answered && log.contains("grace period"), "{log}");
}

async fn wait_for_call(controller: &Controller, action: &str) {
    let line = format!("aws_ebs_csi_ec2_lane_under_way{{request=\"{action}\"}} 1");
    let start = Instant::now();
    while !controller.get("/metrics").1.contains(&line) {
        assert!(start.elapsed() < Duration::from_secs(20), "{action} was not called");
        // The endpoint answers five requests a second.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_create_at_2_replicas_makes_1_volume() {
    let world = World::new().await;
    // Another configuration gives other tags, so EC2 sees another request.
    let replicas = [&[][..], &["--extra-tags=release=2"]]
        .map(|flags| Controller::start(&world.server.ec2(), false, flags));
    let mut calls = Vec::new();
    for replica in &replicas {
        let channel = replica.channel().await;
        for number in 0..5 {
            let mut csi = ControllerClient::new(channel.clone());
            calls.push(tokio::spawn(async move {
                let name = format!("pvc-{number}");
                let made = csi.create_volume(volume(&name, 4)).await?;
                let id = made.into_inner().volume.map(|volume| volume.volume_id);
                Ok::<_, tonic::Status>((name, id))
            }));
        }
    }
    let mut ids: BTreeMap<String, BTreeSet<Option<String>>> = BTreeMap::new();
    for call in calls {
        let (name, id) = call.await.expect("no panic").expect("a volume");
        ids.entry(name).or_default().insert(id);
    }
    assert_eq!(ids.len(), 5);
    assert!(ids.values().all(|ids| ids.len() == 1), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_one_call_harms_no_other() {
    use ebs_csi_proto::csi::identity_server::IdentityServer;
    use ebs_csi_proto::identity::Identity;

    // The first readiness check waits, the second panics, the later ones are answered.
    let checks = Arc::new(AtomicU32::new(0));
    let proceed = Arc::new(tokio::sync::Notify::new());
    let readiness = {
        let (checks, proceed) = (Arc::clone(&checks), Arc::clone(&proceed));
        Arc::new(move || {
            let number = checks.fetch_add(1, Ordering::SeqCst);
            let proceed = Arc::clone(&proceed);
            let answer = async move {
                match number {
                    0 => proceed.notified().await,
                    1 => panic!("on purpose"),
                    _ => {}
                }
                Ok(true)
            };
            Box::pin(answer) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>
        })
    };
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("csi.sock");
    let endpoint: ebs_csi_proto::Endpoint =
        format!("unix://{}", socket.display()).parse().expect("an endpoint");
    let routes = tonic::service::Routes::new(IdentityServer::new(Identity::new("v0", readiness)));
    let routes = ebs_csi_controller::csi::rpc::guarded(routes, Arc::default());
    let server = tokio::spawn(ebs_csi_proto::serve::serve(
        endpoint.bind(0o660).expect("bound"),
        routes,
        std::future::pending(),
        Duration::ZERO,
    ));
    let channel = tonic::transport::Endpoint::try_from(format!("unix://{}", socket.display()))
        .expect("an address")
        .connect()
        .await
        .expect("connected");
    let waiting = tokio::spawn({
        let channel = channel.clone();
        async move { probe(&channel).await }
    });
    while checks.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let fault = probe(&channel).await.expect_err("it panicked");
    assert_eq!(fault.code(), Code::Aborted, "{fault}");
    assert!(fault.message().contains("fault of the driver"), "{fault}");
    assert!(probe(&channel).await.expect("the next one is answered"));
    let info = IdentityClient::new(channel).get_plugin_info(csi::GetPluginInfoRequest {}).await;
    assert!(info.is_ok());
    proceed.notify_one();
    assert!(waiting.await.expect("no panic").expect("answered at last"));
    server.abort();
}

/// The log names the process that delivers the order, by the kernel's statement, and no person.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_for_unasked_detach_is_refused_and_logged() {
    let world = World::new().await;
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("safe-detach.sock");
    let own = rustix::process::getuid().as_raw();
    let flags = [
        "--feature-gates=NonGracefulFailover=true".to_owned(),
        "--safe-detach=enforce".to_owned(),
        format!("--safe-detach-endpoint=unix://{}", socket.display()),
        format!("--safe-detach-peers={own}"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let controller = Controller::start(&world.server.ec2(), false, &flags);
    // Once CSI is served, this socket is, too.
    let _csi = controller.channel().await;
    let address = format!("unix://{}", socket.display());
    let mut client = SafeDetachClient::connect(address).await.expect("it serves");
    let order = BreakGlassRequest {
        subject: Some(Subject {
            volume_id: "vol-0eeeeeeeeeeeeeee5".to_owned(),
            instance_id: "i-0eeeeeeeeeeeeeee5".to_owned(),
        }),
        attached_since: "2026-01-01T00:00:00Z".to_owned(),
        ordered_by: format!("a test\n{}", "x".repeat(1000)),
    };
    let refused = client.break_glass(order).await.expect_err("nobody asked for the detach");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let (_, log) = controller.stop();
    let line = log.lines().find(|line| line.contains("an override order"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    let by = format!("process {} of user {own}, which says", std::process::id());
    assert!(line.contains(&by) && line.contains("a test"), "{line}");
    assert!(!line.contains("person") && !line.contains(&"x".repeat(300)), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn safe_detach_socket_serves_only_listed_peers() {
    let world = World::new().await;
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("safe-detach.sock");
    let serve = format!("--safe-detach-endpoint=unix://{}", socket.display());
    let own = rustix::process::getuid().as_raw();
    let gate = "--feature-gates=NonGracefulFailover=true";
    // The mode, the peer, and the results of a call of SafeDetach and of one of InstanceTypes.
    let rows = [
        ("enforce", own, Code::Ok, Code::Ok),
        ("ec2-only", own + 1, Code::PermissionDenied, Code::PermissionDenied),
        ("off", own, Code::Unimplemented, Code::Ok),
        ("off", own + 1, Code::Unimplemented, Code::PermissionDenied),
    ];
    for (mode, peer, want, want_of_types) in rows {
        let (mode_flag, peers) =
            (format!("--safe-detach={mode}"), format!("--safe-detach-peers={peer}"));
        let controller =
            Controller::start(&world.server.ec2(), false, &[gate, &mode_flag, &serve, &peers]);
        let channel = controller.channel().await;
        let info = IdentityClient::new(channel).get_plugin_info(csi::GetPluginInfoRequest {}).await;
        let manifest = info.expect("it answers").into_inner().manifest;
        let advertised = manifest.get("safe-detach").map(String::as_str);
        assert_eq!(advertised, (mode != "off").then_some("v1"), "{mode}");
        let address = format!("unix://{}", socket.display());
        let channel = tonic::transport::Endpoint::new(address).unwrap().connect().await.unwrap();
        let request = QueryInstancesRequest {
            instance_ids: vec!["i-0eeeeeeeeeeeeeee5".to_owned()],
            ..QueryInstancesRequest::default()
        };
        let queried = SafeDetachClient::new(channel.clone()).query_instances(request).await;
        assert_eq!(queried.map_or_else(|s| s.code(), |_| Code::Ok), want, "{mode}");
        let request = AttachLimitsRequest { instance_types: vec!["z9.large".to_owned()] };
        let told = InstanceTypesClient::new(channel).attach_limits(request).await;
        assert_eq!(told.map_or_else(|s| s.code(), |_| Code::Ok), want_of_types, "{mode}");
        let (status, log) = controller.stop();
        assert!(status.success(), "{log}");
        assert!(log.contains(&format!("mode={mode}")), "{log}");
        let _ = std::fs::remove_file(&socket);
    }
}
