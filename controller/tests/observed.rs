//! What operators see of the controller: metrics, health, traces and log lines, and the TLS that
//! protects them.

#[path = "../../proto/tests/flood/mod.rs"]
mod flood;
mod program;
mod scripted;
mod world;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_client::ControllerClient;
use ebs_csi_proto::health::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use program::{Controller, KEYS, probe, run, volume};
use prost::Message;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use scripted::{ScriptedResponse, Server, certificate};
use serde_json::json;
use tonic::Code;
use world::World;

/// All metrics of the Go driver's controller and all of our own, by name and labels.
const METRICS: [&str; 18] = [
    "aws_ebs_csi_api_request_duration_seconds_bucket{le=\"0.005\",request=\"CreateVolume\"}",
    "aws_ebs_csi_api_request_duration_seconds_count{request=\"DeleteVolume\"}",
    "aws_ebs_csi_api_request_errors_total{request=\"CreateVolume\",code=\"InvalidParameterValue\"}",
    "aws_ebs_csi_api_request_throttles_total{operation_name=\"DescribeSnapshots\",request=\"DescribeSnapshots\"}",
    "aws_ebs_csi_ec2_collector_scrapes_total",
    "aws_ebs_csi_ec2_collector_duration_seconds_bucket{le=\"0.01\"}",
    "aws_ebs_csi_rpc_duration_seconds_bucket{le=\"10.0\",method=\"CreateVolume\",code=\"OK\"}",
    "aws_ebs_csi_rpc_duration_seconds_count{method=\"CreateVolume\",code=\"InvalidArgument\"}",
    "aws_ebs_csi_ec2_bucket_tokens{request=\"DescribeVolumes\"}",
    "aws_ebs_csi_ec2_bucket_refill_per_second{request=\"DescribeVolumes\"}",
    "aws_ebs_csi_ec2_lane_waiting{request=\"DescribeVolumes\"}",
    "aws_ebs_csi_ec2_lane_oldest_seconds{request=\"DescribeVolumes\"}",
    "aws_ebs_csi_ec2_lane_under_way{request=\"DescribeVolumes\"}",
    "aws_ebs_csi_ec2_poll_batch_size_bucket{le=\"200.0\",request=\"DescribeVolumes\"}",
    "aws_ebs_csi_cache_lookups_total{cache=\"instance_type\",result=\"hit\"}",
    "aws_ebs_csi_cache_lookups_total{cache=\"iops_maximum\",result=\"miss\"}",
    "aws_ebs_csi_operations ",
    "aws_ebs_csi_ec2_usable ",
];

/// Three of them under their deprecated names.
const DEPRECATED: [&str; 3] = [
    "cloudprovider_aws_api_request_duration_seconds_count{request=\"CreateVolume\"}",
    "cloudprovider_aws_api_request_errors{request=\"CreateVolume\",code=\"InvalidParameterValue\"} 1",
    "cloudprovider_aws_api_throttled_requests_total{operation_name=\"DescribeSnapshots\",request=\"DescribeSnapshots\"} 1",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_metrics_are_served_deprecated_only_on_request() {
    for deprecated in [false, true] {
        let world = World::new().await;
        let throttled = json!({ "kind": "error", "code": "RequestLimitExceeded", "status": 503 });
        world.fault_once("DescribeSnapshots", &throttled);
        let flag = format!("--deprecated-metrics={deprecated}");
        let controller = Controller::start(&world.server.ec2(), true, &[&flag]);
        let channel = controller.channel().await;
        let mut csi = ControllerClient::new(channel);
        csi.create_volume(volume("pvc-1", 4)).await.expect("a volume");
        let mut wrong = volume("pvc-2", 4);
        wrong.parameters.insert("throughput".to_owned(), "999999".to_owned());
        csi.create_volume(wrong).await.expect_err("refused by EC2");
        csi.list_snapshots(csi::ListSnapshotsRequest::default()).await.expect("throttled once");
        // The first scrape counts itself only after the page was written.
        controller.get("/metrics");
        let (_, page) = controller.get("/metrics");
        let is_served = |name| page.lines().any(|line| line.starts_with(name));
        for name in METRICS {
            assert!(is_served(name), "{name}\n{page}");
        }
        for name in DEPRECATED {
            assert_eq!(is_served(name), deprecated, "{name}\n{page}");
        }
        let help = page.lines().filter(|line| line.starts_with("# HELP cloudprovider_"));
        let names_flag = help.filter(|line| line.contains("with --deprecated-metrics"));
        assert_eq!(names_flag.count(), if deprecated { DEPRECATED.len() } else { 0 }, "{page}");
    }
}

/// Runs the command on these handles. Returns the status, standard output and standard error.
fn orphans(aws: &str, arguments: &[&str], handles: &str) -> (Option<i32>, String, String) {
    use std::io::Write;
    let mut child = program::program()
        .arg("orphans")
        .args(arguments)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", aws)
        .envs(KEYS)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The program may refuse its command line without reading its input.
    let _ = child.stdin.take().expect("piped").write_all(handles.as_bytes());
    program::to_texts(&child.wait_with_output().expect("it ends"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_command_lists_leftovers_and_deletes_nothing() {
    let world = World::new().await;
    let start_with_volumes = async |cluster: &str, names: &[&str]| {
        let flag = format!("--k8s-tag-cluster-id={cluster}");
        let flags = [flag.as_str(), "--snapshot-takeover-wait=0"];
        let controller = Controller::start(&world.server.ec2(), false, &flags);
        let mut csi = ControllerClient::new(controller.channel().await);
        let mut made = Vec::new();
        for name in names {
            let answer = csi.create_volume(volume(name, 4)).await.expect("a volume");
            made.push(answer.into_inner().volume.expect("a volume").volume_id);
        }
        (csi, made, controller)
    };
    let (mut csi, own, _controller) =
        start_with_volumes("prod", &["pvc-kept", "pvc-left", "pvc-gone"]).await;
    let (_, other, _other) = start_with_volumes("test", &["pvc-other"]).await;
    let mut snapshots = Vec::new();
    for name in ["snapshot-kept", "snapshot-left"] {
        let request = csi::CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: own[0].clone(),
            ..Default::default()
        };
        let answer = csi.create_snapshot(request).await.expect("a snapshot");
        snapshots.push(answer.into_inner().snapshot.expect("one").snapshot_id);
    }
    csi.delete_volume(csi::DeleteVolumeRequest { volume_id: own[2].clone(), ..Default::default() })
        .await
        .expect("deleted");

    let aws = world.server.ec2();
    let (kept, left) = (&own[0], &own[1]);
    let all = ["--k8s-tag-cluster-id=prod", "--older-than=0"];
    let with_snapshots = format!("{kept}\n{}\n", snapshots[0]);
    let (code, out, stderr) = orphans(&aws, &all, &with_snapshots);
    assert_eq!(code, Some(0), "{stderr}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(lines[0].starts_with(&format!("{left}\tpvc-left\t4 GiB\t20")), "{out}");
    assert!(lines[0].ends_with("\t-"), "{out}");
    assert!(lines[1].starts_with(&format!("{}\tsnapshot-left\t", snapshots[1])), "{out}");
    assert!(stderr.contains("2 orphans of cluster prod"), "{stderr}");
    assert!(!out.contains(&other[0]), "{out}");

    // Without a snapshot handle no snapshot is checked, and a young object may belong to a request
    // in progress.
    let (code, out, stderr) = orphans(&aws, &all, kept);
    assert_eq!((code, out.lines().count()), (Some(0), 1), "{stderr}");
    assert!(stderr.contains("snapshots were not looked at"), "{stderr}");
    let (code, out, stderr) = orphans(&aws, &all[..1], &with_snapshots);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{stderr}");

    // Input that could make a volume in use an orphan is refused.
    for (arguments, handles, word) in [
        (&all[..], "", "no volume's handle"),
        (&all[..], "NAME", "line 1"),
        (&["--older-than=0"][..], kept.as_str(), "--k8s-tag-cluster-id"),
        (&["--k8s-tag-cluster-id="][..], kept.as_str(), "--k8s-tag-cluster-id"),
    ] {
        let (code, out, stderr) = orphans(&aws, arguments, handles);
        assert_eq!((code, out.as_str()), (Some(64), ""), "{stderr}");
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
    world.deny("DescribeSnapshots");
    let (code, out, stderr) = orphans(&aws, &all, &with_snapshots);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("ec2:DescribeSnapshots"), "{stderr}");
    // The only deletion is the one that this test made.
    assert_eq!((world.calls("DeleteVolume"), world.calls("DeleteSnapshot")), (1, 0));
}

/// Returns the endpoint's answer to a client that trusts only the certificate of `name`.test.
async fn get_by_tls(address: SocketAddr, name: &str) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let pem = std::fs::read(certificate(&format!("{name}.crt")))?;
    let mut roots = rustls::RootCertStore::empty();
    let trusted = CertificateDer::from_pem_slice(&pem).map_err(std::io::Error::other)?;
    roots.add(trusted).map_err(std::io::Error::other)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(address).await?;
    let host = ServerName::try_from(format!("{name}.test")).map_err(std::io::Error::other)?;
    let mut stream =
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(host, stream).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn replace_file(from: &str, to: &Path) {
    let temporary = to.with_extension("new");
    std::fs::copy(certificate(from), &temporary).expect("a copy");
    std::fs::rename(&temporary, to).expect("in its place");
}

/// Returns a directory that others may read: the controller gives up root, and a test's directory
/// is accessible to its owner alone, as the folder of the checkout may be.
fn readable_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), readable).expect("readable");
    directory
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_tls_follows_certificate_rotation() {
    let world = World::new().await;
    let directory = readable_directory();
    let (chain, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    replace_file("one.crt", &chain);
    replace_file("one.key", &key);
    let flags = [
        format!("--metrics-cert-file={}", chain.display()),
        format!("--metrics-key-file={}", key.display()),
    ];
    let controller = Controller::start(&world.server.ec2(), true, &[&flags[0], &flags[1]]);
    assert!(probe(&controller.channel().await).await.expect("ready"));
    let address = controller.http.expect("served");
    let assert_served_with = async |served: &str, other: &str| {
        let answer = get_by_tls(address, served).await.expect("TLS");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(get_by_tls(address, other).await.is_err());
    };
    assert_served_with("one", "two").await;
    // Clients that never begin a handshake displace none that does.
    let silent = flood::hold(address, 64, "");
    assert_served_with("one", "two").await;
    drop(silent);
    // Half of a rotation: the key does not fit the certificate, and the previous pair stays in use.
    replace_file("two.crt", &chain);
    assert_served_with("one", "two").await;
    replace_file("two.key", &key);
    assert_served_with("two", "one").await;
    let (_, log) = controller.stop();
    assert!(log.contains("the one before stays"), "{log}");
}

#[test]
fn unusable_metrics_certificate_exits_78() {
    let dir = readable_directory();
    for file in ["README.md", "two.crt", "one.key"] {
        replace_file(file, &dir.path().join(file));
    }
    let endpoint = format!("--endpoint=unix://{}/csi.sock", dir.path().display());
    let http = format!("--http-endpoint={}", program::port());
    let key = format!("--metrics-key-file={}/one.key", dir.path().display());
    for (file, word) in [
        (dir.path().join("README.md"), "holds no certificate"),
        (dir.path().join("two.crt"), "two.crt"),
        (PathBuf::from("/nonexistent/tls.crt"), "/nonexistent/tls.crt"),
    ] {
        let chain = format!("--metrics-cert-file={}", file.display());
        let (code, _, err) = run(&[&endpoint, &http, &chain, &key], &[("AWS_REGION", "us-east-1")]);
        assert_eq!(code, Some(78), "{err}");
        assert!(err.contains(word), "{word}: {err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_health_tells_readiness_from_liveness() {
    let world = World::new().await;
    world.refuse("DescribeAvailabilityZones", "Unavailable", 503);
    let controller = Controller::start(&world.server.ec2(), false, &[]);
    let channel = controller.channel().await;
    let check = async |service: &str| {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.expect("connected");
        let request = HealthCheckRequest { service: service.to_owned() };
        let codec: tonic_prost::ProstCodec<HealthCheckRequest, HealthCheckResponse> =
            tonic_prost::ProstCodec::default();
        let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        grpc.unary(tonic::Request::new(request), path, codec)
            .await
            .map(|answer| answer.into_inner().status())
    };
    assert_eq!(check("").await.expect("alive"), ServingStatus::Serving);
    assert_eq!(check("readiness").await.expect("an answer"), ServingStatus::NotServing);
    world.clear_faults();
    let start = Instant::now();
    while check("readiness").await.expect("an answer") != ServingStatus::Serving {
        assert!(start.elapsed() < Duration::from_secs(30), "it did not recover");
        let _ = probe(&channel).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(check("nonsense").await.expect_err("unknown").code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_reach_a_collector_by_either_protocol() {
    for (protocol, path) in [
        ("http/protobuf", "/v1/traces"),
        ("grpc", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
    ] {
        let world = World::new().await;
        let collector = Server::start(|_| ScriptedResponse {
            headers: vec![
                ("grpc-status", "0".to_owned()),
                ("content-type", "application/grpc".to_owned()),
            ],
            ..ScriptedResponse::ok("")
        })
        .await;
        let environment = [
            KEYS[0],
            KEYS[1],
            ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=t1"),
            ("OTEL_SERVICE_NAME", "ebs-of-this-test"),
        ];
        let controller = Controller::with(&world.server.ec2(), false, &[], &environment);
        let channel = controller.channel().await;
        assert!(probe(&channel).await.expect("ready"));
        let mut csi = ControllerClient::new(channel);
        csi.create_volume(volume("pvc-traced", 4)).await.expect("a volume");
        let (ended, log) = controller.stop();
        assert_eq!(ended.code(), Some(0), "{log}");
        let requests = collector.requests();
        assert!(!requests.is_empty(), "{protocol}: nothing arrived\n{log}");
        let mut spans = Vec::new();
        for request in &requests {
            assert!(request.uri.ends_with(path), "{}", request.uri);
            assert_eq!(request.header("x-tenant"), Some("t1"));
            // A gRPC message has a prefix of five bytes.
            let body = &request.body[if protocol == "grpc" { 5 } else { 0 }..];
            let export = ExportTraceServiceRequest::decode(body).expect("an export");
            for resource in export.resource_spans {
                let of = resource.resource.expect("a resource").attributes;
                assert_eq!(attribute(&of, "service.name"), Some("ebs-of-this-test"));
                spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        assert!(spans.iter().all(|span| {
            (span.trace_id.len(), span.span_id.len()) == (16, 8)
                && span.start_time_unix_nano <= span.end_time_unix_nano
                && span.name != "csi.v1.Identity/Probe"
        }));
        let named = |name: &str, kind: SpanKind| {
            let mut found = spans.iter().filter(|span| span.name == name);
            let found = found.next().unwrap_or_else(|| panic!("{protocol}: no {name}\n{log}"));
            assert_eq!(found.kind(), kind, "{name}");
            found
        };
        let rpc = named("csi.v1.Controller/CreateVolume", SpanKind::Server);
        assert_eq!(attribute(&rpc.attributes, "request.name"), Some("pvc-traced"));
        assert!(rpc.parent_span_id.is_empty());
        let created = named("CreateVolume", SpanKind::Client);
        assert_eq!(created.trace_id, rpc.trace_id);
        assert_eq!(created.parent_span_id, rpc.span_id);
        assert!(attribute(&created.attributes, "aws.request_id").is_some());
        named("DescribeVolumes", SpanKind::Client);
    }
}

fn attribute<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rpc_log_line_has_ec2_request_id() {
    let world = World::new().await;
    let controller = Controller::start(&world.server.ec2(), false, &["--logging-format=json"]);
    let mut csi = ControllerClient::new(controller.channel().await);
    csi.create_volume(volume("pvc-logged", 4)).await.expect("a volume");
    let (_, log) = controller.stop();
    let line = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|line| line["msg"] == "rpc" && line["outcome"] == "OK")
        .expect("a line for the call");
    assert_eq!(line["method"], "csi.v1.Controller/CreateVolume");
    assert_eq!(line["request.name"], "pvc-logged");
    assert!(line["ts"].is_f64() && line["v"] == 0, "{line}");
    assert!(line["id"].is_u64(), "{line}");
    assert!(line["ec2.request_id"].as_str().is_some_and(|id| id.len() >= 8), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rpc_log_line_is_short_for_long_names() {
    let world = World::new().await;
    let controller = Controller::start(&world.server.ec2(), false, &[]);
    let mut csi = ControllerClient::new(controller.channel().await);
    let long = "x".repeat(3_000_000);
    let refused = csi.create_volume(volume(&long, 4)).await.expect_err("a name of 3 MB");
    assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message().len());
    let delete = csi::DeleteVolumeRequest { volume_id: long.clone(), ..Default::default() };
    csi.delete_volume(delete).await.expect("no such volume");
    let snapshot = csi::CreateSnapshotRequest {
        name: "s".to_owned(),
        source_volume_id: long,
        ..Default::default()
    };
    let refused = csi.create_snapshot(snapshot).await.expect_err("an id of 3 MB");
    assert_eq!(refused.code(), Code::NotFound, "{}", refused.message().len());
    let (_, log) = controller.stop();
    let longest = log.lines().map(str::len).max().unwrap_or_default();
    assert!(log.contains("xxx") && longest < 6_000, "{longest}");
}
