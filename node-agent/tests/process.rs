//! The real program: its command line, its state in the kernel while it serves, and its end.

#[path = "scripted/agent.rs"]
mod agent;
#[path = "../../proto/tests/flood/mod.rs"]
mod flood;
#[path = "scripted/metadata_service.rs"]
mod metadata_service;
#[path = "scripted/helper.rs"]
mod scripted_helper;
#[path = "scripted/world.rs"]
mod world;

use std::time::Duration;

use agent::{Host, is_root, program};
use ebs_csi_policy::profile::NODE_AGENT;
use ebs_csi_proto::csi;
use ebs_csi_proto::http_endpoint::MAX_CONNECTIONS;
use ebs_csi_wire::{HeldVolume, LogPage, Outcome, Staged};
use metadata_service::{Behaviour, MetadataService};
use rustix::process::Signal;
use scripted_helper::Act;
use tonic::Code;
use world::{publish, refused, stage};

/// The kernel shows the agent's own user, no capabilities and a seccomp filter; the agent serves
/// even when the helper restarts.
#[tokio::test]
async fn agent_started_as_root_drops_all_privileges() {
    let Some(mut host) = Host::new() else { return };
    let mut agent = host.serve(&["--http-endpoint=127.0.0.1:0"]).await;

    let status = agent.status();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("{name} in {status}"))
            .trim()
            .to_owned()
    };
    let own = [NODE_AGENT.identity.uid.to_string().as_str(); 4].join("\t");
    assert_eq!(field("Uid:"), own);
    assert_eq!(field("Gid:"), own);
    assert_eq!(field("Groups:"), "");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2");

    // The agent works under this confinement, also after the helper restarted as another process.
    let mut node = world::node(&agent.socket);
    node.node_stage_volume(stage()).await.unwrap();
    host.restart_helper();
    node.node_publish_volume(publish()).await.unwrap();
    assert_eq!(host.helper().requests().len(), 1);
    let info = node.node_get_info(csi::NodeGetInfoRequest {}).await.unwrap();
    assert_eq!(info.into_inner().max_volumes_per_node, 23);
    let empty = csi::NodeStageVolumeRequest::default();
    refused(node.node_stage_volume(empty).await, Code::InvalidArgument);

    agent.signal(Signal::TERM);
    assert!(agent.end().await.success());
    let log = agent.log();
    assert!(log.contains("confined") && log.contains("draining"), "{log}");
    assert!(!log.contains("must-not-stay"));
}

#[tokio::test]
async fn agent_started_under_own_user_needs_no_root() {
    let Some(host) = Host::new() else { return };
    agent::own(host.path());
    let mut agent = host.start_as(NODE_AGENT.identity.uid, &[]);
    agent.ready().await;
    world::node(&agent.socket).node_stage_volume(stage()).await.unwrap();
    assert_eq!(host.helper().requests().len(), 1);
    assert!(agent.status().contains("Seccomp:\t2"));
    agent.signal(Signal::INT);
    assert!(agent.end().await.success());
    assert!(!agent.socket.exists(), "it removes its own socket");
}

/// The agent cannot confine itself under a user that is not its own; the log names the right one.
#[tokio::test]
async fn agent_started_under_other_user_exits_with_77() {
    let Some(host) = Host::new() else { return };
    std::os::unix::fs::chown(host.path(), Some(12345), Some(12345)).unwrap();
    let mut agent = host.start_as(12345, &[]);
    assert_eq!(agent.end().await.code(), Some(77));
    let log = agent.log();
    assert!(
        log.contains(&NODE_AGENT.identity.uid.to_string()),
        "it says which user it should be: {log}"
    );
}

/// The log of an agent that serves has what its settings opened. One whose settings would open more
/// than a setting may ends before it takes the sockets of the serving agent.
#[tokio::test]
async fn facts_file_out_of_bounds_exits_78() {
    let Some(host) = Host::new() else { return };
    let here = host.path().canonicalize().unwrap();
    std::fs::write(here.join("labels"), "").unwrap();
    std::os::unix::fs::symlink("/", here.join("root")).unwrap();
    let file = |path: &str| format!("--node-facts-file={}", here.join(path).display());
    let serving = host.serve(&[&file("labels"), &file("root/etc/passwd")]).await;
    let log = serving.log();
    let opened = format!("places=\"socket-directory={0} node-facts={0} ", here.display());
    assert!(log.contains(&opened) && log.contains(" node-facts=/etc/passwd\""), "{log}");
    for (path, leads_to) in [("root", "/"), ("root/proc/version", "/proc/version")] {
        let mut refused = host.start(&[&file(path)]);
        assert_eq!(refused.end().await.code(), Some(78), "{}", refused.log());
        let last = refused.log().lines().last().unwrap_or_default().to_owned();
        assert!(last.contains("--node-facts-file") && last.contains(leads_to), "{last}");
        refused.forget_log();
    }
    world::node(&serving.socket).node_get_info(csi::NodeGetInfoRequest {}).await.unwrap();
}

#[tokio::test]
async fn stage_retry_after_agent_kill_repeats_same_request() {
    let Some(host) = Host::new() else { return };
    let mut first = host.serve(&[]).await;
    host.helper().then([Act::Hang, Act::Answer(Outcome::Staged(Staged::default()))]);
    let mut node = world::node(&first.socket);
    let cut_off = tokio::spawn(async move { node.node_stage_volume(stage()).await });
    host.helper().wait_for_requests(1).await;
    first.signal(Signal::KILL);
    assert!(!first.end().await.success());
    assert!(cut_off.await.unwrap().is_err());

    let second = host.serve(&[]).await;
    world::node(&second.socket).node_stage_volume(stage()).await.unwrap();
    let requests = host.helper().requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0], requests[1]);
}

#[tokio::test]
async fn sigterm_lets_running_call_finish() {
    let Some(host) = Host::new() else { return };
    let mut agent = host.serve(&[]).await;
    host.helper()
        .then([Act::Slowly(Duration::from_millis(500), Outcome::Staged(Staged::default()))]);
    let mut node = world::node(&agent.socket);
    let running = tokio::spawn(async move { node.node_stage_volume(stage()).await });
    host.helper().wait_for_requests(1).await;
    agent.signal(Signal::TERM);
    running.await.unwrap().unwrap();
    assert!(agent.end().await.success());
}

/// Any other path is 404, and /readyz is 503 once the helper is gone.
#[tokio::test]
async fn confined_agent_serves_metrics_and_health_pages() {
    let Some(mut host) = Host::new() else { return };
    let address = agent::free_address();
    let flag = format!("--http-endpoint={address}");
    let agent = host.serve(&[&flag, "--logging-format=json"]).await;
    let mut node = world::node(&agent.socket);
    node.node_stage_volume(stage()).await.unwrap();
    let empty = csi::NodeStageVolumeRequest::default();
    refused(node.node_stage_volume(empty).await, Code::InvalidArgument);
    let get = |path: &str| agent::get(&address, path);
    let mut statistics = vec![0; 4096];
    statistics[..4].copy_from_slice(&0x3c23_b510_u32.to_le_bytes());
    statistics[8] = 42;
    host.helper()
        .then([staged_volume(), Act::Answer(Outcome::LogPage(LogPage { page: statistics }))]);
    let page = get("/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    for line in [
        r#"aws_ebs_csi_read_ops_total{instance_id="i-0123456789abcdef0",volume_id="vol-0123456789abcdef0"} 42"#,
        r#"ebs_csi_node_agent_disk_by_name{volume_id="vol-0123456789abcdef0"} 1"#,
        r#"aws_ebs_csi_nvme_collector_scrapes_total{instance_id="i-0123456789abcdef0"} 1"#,
        r#"aws_ebs_csi_nvme_collector_errors_total{instance_id="i-0123456789abcdef0"} 0"#,
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    for code in ["OK", "InvalidArgument"] {
        let sample = format!("method=\"NodeStageVolume\",code=\"{code}\"}} 1");
        assert!(page.contains(&sample), "{sample}: {page}");
    }
    assert!(get("/healthz").contains("200 OK"));
    assert!(get("/readyz").contains("200 OK"));
    assert!(get("/etc/passwd").contains("404 Not Found"));
    host.helper = None;
    assert!(get("/readyz").contains("503"), "the helper is gone");
    let log = agent.log();
    for line in log.lines() {
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
    }
}

fn host_of_unlisted_type() -> Host {
    let mut pages = metadata_service::pages();
    let document = pages[0].1.replace("m5.large", "z9.large");
    pages[0].1 = &document;
    Host::with(MetadataService::start(Behaviour::Usual, &pages))
}

#[tokio::test]
async fn unlisted_instance_type_shows_in_log_and_metric() {
    if !is_root() {
        return;
    }
    let host = host_of_unlisted_type();
    let address = agent::free_address();
    let agent = host.serve(&[&format!("--http-endpoint={address}")]).await;
    let mut node = world::node(&agent.socket);
    for _ in 0..2 {
        let info = node.node_get_info(csi::NodeGetInfoRequest {}).await.unwrap();
        assert_eq!(info.into_inner().max_volumes_per_node, 23);
    }
    let log = agent.log();
    let told = log.lines().filter(|line| line.contains("z9.large") && line.contains("assumed"));
    assert_eq!(told.count(), 1, "{log}");
    let page = agent::get(&address, "/metrics");
    let line = "ebs_csi_node_agent_attach_limit_guessed{instance_type=\"z9.large\"} 1";
    assert!(page.lines().any(|served| served == line), "{page}");
}

/// A type that no release knows works on the day it appears, and corrections need no new agent.
#[tokio::test]
async fn limit_of_annotation_counts_for_unlisted_type() {
    if !is_root() {
        return;
    }
    let host = host_of_unlisted_type();
    let annotations = host.path().join("annotations");
    let write = |value: &str| {
        let line = format!("ebs.csi.aws.com/attach-limit=\"{value}\"\n");
        std::fs::write(&annotations, line).unwrap();
    };
    write("");
    let address = agent::free_address();
    let files = format!("--node-facts-file={}", annotations.display());
    let agent = host.serve(&[&files, &format!("--http-endpoint={address}")]).await;
    let mut node = world::node(&agent.socket);
    let request = || world::timed(csi::NodeGetInfoRequest {}, Duration::from_secs(60));
    let info = tokio::spawn({
        let (mut node, request) = (node.clone(), request());
        async move { node.node_get_info(request).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    // The call waits for the annotation. Of the 100 slots 3 are taken: of the root volume and of
    // two others.
    assert!(!info.is_finished());
    write("100 dedicated z9.large i-0123456789abcdef0");
    let info = info.await.unwrap().unwrap().into_inner();
    assert_eq!(info.max_volumes_per_node, 97);
    let guessed = || agent::get(&address, "/metrics").contains("limit_guessed{");
    assert!(!guessed());
    let mut ask = async |value: &str| {
        write(value);
        node.node_get_info(request()).await.unwrap().into_inner().max_volumes_per_node
    };
    assert_eq!(ask("64 dedicated z9.large i-0123456789abcdef0").await, 61);
    assert_eq!(ask("64 dedicated z9.large i-0fedcba9876543210").await, 23, "another instance");
    assert!(guessed());
    for hostile in ["0 dedicated z9.large i-0123456789abcdef0", "1e9", "\\\"\\n"] {
        assert_eq!(ask(hostile).await, 23, "{hostile}");
    }
    assert_eq!(ask("32 shared z9.large i-0123456789abcdef0").await, 28);
    assert!(!guessed());
    let log = agent.log();
    assert_eq!(log.matches("an attachment limit is ignored").count(), 4, "{log}");
}

/// Whatever clients hold, the number of connections is bounded, and CSI calls are served.
#[tokio::test]
async fn liveness_probe_is_answered_during_any_flood() {
    let Some(host) = Host::new() else { return };
    let address = agent::free_address();
    let agent = host.serve(&[&format!("--http-endpoint={address}")]).await;
    let address = address.parse().unwrap();
    let process = agent.child.id();
    let at_rest = flood::sockets(process);
    for (count, sent) in flood::FLOODS {
        let held = flood::hold(address, count, sent);
        assert_eq!(flood::answered_of_20_probes(address), 20, "{count} {sent:?}");
        let more = flood::sockets(process).saturating_sub(at_rest);
        // Of those, one may be about to close, and two lead to the mount-helper.
        assert!(more <= MAX_CONNECTIONS + 3, "{count} {sent:?}: {more} more sockets");
        drop(held);
    }
    let opener = flood::Opener::start(address);
    assert_eq!(flood::answered_of_20_probes(address), 20, "connections are opened");
    world::node(&agent.socket).node_stage_volume(stage()).await.unwrap();
    drop(opener);
}

/// Returns the helper's answer while the helper holds one volume.
fn staged_volume() -> Act {
    Act::holds([HeldVolume { by_name: true, ..world::held(world::STAGING, true) }])
}

/// The agent is confined before kubelet has written the file, which kubelet does by switching a
/// link.
#[tokio::test]
async fn node_info_is_unavailable_until_facts_appear() {
    if !is_root() {
        return;
    }
    let host = Host::with(MetadataService::start(Behaviour::NoToken, &[]));
    let facts = host.path().join("facts");
    let write = |version: &str, text: &str| {
        let (data, link) = (facts.join(version), facts.join("..data"));
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("annotations"), text).unwrap();
        let fresh = facts.join("..data_tmp");
        std::os::unix::fs::symlink(version, &fresh).unwrap();
        std::fs::rename(fresh, link).unwrap();
    };
    write("..1", "ebs.csi.aws.com/draining=\"true\"\n");
    let file = facts.join("annotations");
    std::os::unix::fs::symlink("..data/annotations", &file).unwrap();
    let file = format!("--node-facts-file={}", file.display());
    let sources = "--metadata-sources=kubernetes,imds";
    let arguments = [sources, "--node-facts-timeout=0", &file];
    let agent = host.serve(&arguments).await;
    let mut node = world::node(&agent.socket);
    let request = || world::timed(csi::NodeGetInfoRequest {}, Duration::from_secs(2));
    let missing = refused(node.node_get_info(request()).await, Code::Unavailable);
    assert!(missing.message().contains("is not known"), "{missing}");
    // Calls on volumes need no facts.
    node.node_stage_volume(stage()).await.unwrap();
    write(
        "..2",
        "ebs.csi.aws.com/zone=\"eu-west-1a\"\nebs.csi.aws.com/instance-type=\"m5.large\"\n\
         ebs.csi.aws.com/instance-id=\"i-0123456789abcdef0\"\n",
    );
    let info = node.node_get_info(csi::NodeGetInfoRequest {}).await;
    let info = info.unwrap().into_inner();
    assert_eq!(info.node_id, world::INSTANCE);
    let topology = info.accessible_topology.unwrap();
    assert_eq!(topology.segments["topology.kubernetes.io/zone"], "eu-west-1a");
    assert!(agent.status().contains("Seccomp:\t2"));
    let log = agent.log();
    assert!(log.contains("NodeGetInfo is UNAVAILABLE until"), "{log}");
    assert!(log.contains("this node"), "{log}");
}

/// The log names --node-facts-file and the hop limit, and no CSI socket remains.
#[tokio::test]
async fn missing_node_identity_exits_1_with_reason() {
    let host = Host::with(MetadataService::start(Behaviour::NoToken, &[]));
    let sources = "--metadata-sources=imds,kubernetes";
    let mut agent = host.start(&[sources, "--node-facts-timeout=0"]);
    assert_eq!(agent.end().await.code(), Some(1));
    let log = agent.log();
    assert!(log.contains("--node-facts-file") && log.contains("hop limit"), "{log}");
    assert!(!agent.socket.exists(), "no socket that nobody serves");
}

/// The flag --windows-host-process is known but unsupported and exits with 78.
#[test]
fn bad_flags_exit_64_with_1_error_line() {
    for (arguments, says) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["--volume-attach-limit=1", "--reserved-volume-attachments=1"], "--volume-attach-limit"),
        (&["--endpoint=ftp://x"], "--endpoint"),
        (&["controller"], "controller"),
        (&["pre-stop-hook", "--helper=nowhere"], "--helper"),
    ] {
        let output = program().args(arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(says), "{error}");
    }
    let output = program().arg("--windows-host-process").output().unwrap();
    assert_eq!(output.status.code(), Some(78));
}

#[test]
fn help_and_version_are_printed_to_stdout() {
    for (flag, says) in [("--help", "--endpoint"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output = program().arg(flag).output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(says), "{text}");
    }
}

/// Without the draining annotation the hook exits with 0 at once; at its timeout it exits with 1.
#[tokio::test]
async fn pre_stop_hook_waits_for_volumes_while_draining() {
    let Some(host) = Host::new() else { return };
    let facts = host.path().join("annotations");
    let hook = |timeout: &str| {
        program()
            .arg("pre-stop-hook")
            .args(["--helper", &format!("unix://{}", host.path().join("helper.sock").display())])
            .args(["--node-facts-file", facts.to_str().unwrap(), "--timeout", timeout])
            .output()
            .unwrap()
            .status
            .code()
    };
    // Without the draining annotation the hook does not even ask the helper.
    assert_eq!(hook("1"), Some(0));
    assert!(host.helper().requests().is_empty());
    std::fs::write(&facts, "ebs.csi.aws.com/draining=\"true\"\n").unwrap();
    host.helper().then([staged_volume(), staged_volume()]);
    assert_eq!(hook("30"), Some(0), "it waits until the volume is gone");
    assert_eq!(host.helper().requests().len(), 3);
    host.helper().then(std::iter::repeat_with(staged_volume).take(50));
    assert_eq!(hook("1"), Some(1), "and no longer than it may");
}
