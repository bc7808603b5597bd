//! A real Prometheus scrapes the driver's processes while volumes live and die. Then each query of
//! the chart's dashboards and each alert finds series, or waits for an event that is named here.

mod server;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use ebs_csi_e2e::{Fixture, dashboards, repository};
use ebs_csi_policy::profile;
use ebs_csi_sandbox::binaries::for_test;
use ebs_csi_sandbox::co::{Claim, GIB, Volume, safe_detach};
use ebs_csi_sandbox::pod_view;
use serde_json::{Value, json};
use server::{Prometheus, Target};

/// Addresses that no other process of the machine gets by chance: the ports are below the kernel's
/// ephemeral ports, and no other test uses this loopback address.
const PROMETHEUS: &str = "127.0.78.1:9090";
const TARGETS: [Target; 3] = [
    Target { job: "ebs-csi-controller", pod: "controller-1", address: "127.0.78.1:3301" },
    Target {
        job: "ebs-csi-controller-node-lifecycle",
        pod: "controller-1",
        address: "127.0.78.1:3308",
    },
    Target { job: "ebs-csi-node", pod: "node-1", address: "127.0.78.1:9808" },
];

/// What is in queries that find nothing here, and the event after which they do.
const WAITS: [(&str, &str); 9] = [
    ("aws_ebs_csi_ec2_detach_pending_seconds_total", "a detach has lasted a minute"),
    ("mode=\"enforce\"", "the controller runs in this mode"),
    ("aws_ebs_csi_safe_detach_fences_total", "a fence is asked for"),
    ("aws_ebs_csi_safe_detach_fence_seconds_bucket", "an instance is off after a fence"),
    ("aws_ebs_csi_safe_detach_time_to_proof_seconds_bucket", "a node is lost and that is proved"),
    (
        "aws_ebs_csi_safe_detach_time_to_recover_seconds_bucket",
        "a lost node has no attachment left",
    ),
    ("ebs_csi_node_agent_filesystem_hung", "a file system does not answer"),
    ("ebs_csi_node_agent_disk_by_name", "a disk has no serial, on Xen"),
    ("ebs_csi_node_agent_attach_limit_guessed", "the table of limits lacks the instance type"),
];

/// The longest wait for what Prometheus has not seen yet.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a query stands for, and what Prometheus is asked.
struct Query {
    of: String,
    asked: String,
}

/// Polls until there is a result. Panics with the last reason and the end of every log.
async fn until<T>(fixture: &Fixture, look: impl AsyncFn() -> Result<T, String>) -> T {
    let mut last = String::new();
    let polling = async {
        loop {
            match look().await {
                Ok(found) => return found,
                Err(why) => last = why,
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let found = tokio::time::timeout(TIMEOUT, polling).await;
    found.unwrap_or_else(|_| panic!("{last}\n{}", fixture.logs()))
}

/// Waits until Prometheus has scraped each target, and the page of this volume's statistics, after
/// this moment.
async fn scraped(fixture: &Fixture, prometheus: &Prometheus, volume: Option<&Volume>) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
    let now = now.as_secs_f64();
    let mut wanted = vec![(format!("(timestamp(up) and up == 1) > {now}"), TARGETS.len())];
    if let Some(Volume { id, .. }) = volume {
        let written = format!("aws_ebs_csi_write_bytes_total{{volume_id=\"{id}\"}}");
        wanted.push((format!("timestamp({written}) > {now} and {written} > 0"), 1));
    }
    for (query, number) in wanted {
        let is_found = async || match prometheus.query(&query).await {
            Ok(found) if found.len() == number => Ok(()),
            Ok(found) => Err(format!("{query} finds {found:?}")),
            Err(error) => Err(error.to_string()),
        };
        until(fixture, is_found).await;
    }
}

/// A volume's life until a pod uses it for the second time, with calls to EC2 that fail. Returns
/// the volume in use.
async fn live(fixture: &Fixture, prometheus: &Prometheus, name: &str) -> Volume {
    let ec2 = fixture.ec2();
    let throttled = json!({ "kind": "throttle" });
    let once = json!({ "match": { "action": "AttachVolume" }, "count": 1, "fault": throttled });
    ec2.fault(once).await.expect("a fault");
    // XFS grows while it is mounted wherever this runs.
    let claim = Claim::filesystem(name, "xfs", 1).parameter("type", "gp3");
    let (mut volume, attachment) = fixture.attached(&claim).await;
    let mut impatient = fixture.co.clone();
    impatient.attacher = impatient.attacher.once();
    let refused = impatient.attach(&volume, "i-0cccccccccccccccc").await;
    refused.expect_err("there is no such instance");
    let kubelet = &fixture.kubelets[0];
    let published = fixture.published(&volume, &attachment, "pod-1").await;
    pod_view::write(&published, name).expect("the pod writes");
    fixture.must("stats", kubelet.stats(&volume, &published)).await;
    // What the kernel reads for the second mount comes after a first count.
    scraped(fixture, prometheus, Some(&volume)).await;
    fixture.must("unpublish", kubelet.unpublish(&volume, "pod-1")).await;
    fixture.must("unstage", kubelet.unstage(&volume)).await;
    let published = fixture.published(&volume, &attachment, "pod-1").await;
    let id = volume.id.clone();
    let grown = fixture.co.expand(&mut volume, 2 * GIB);
    let (grown, modified) = tokio::join!(grown, fixture.co.modify(&id, &[("iops", "3014")]));
    fixture.must("expand and modify", async { grown.and(modified) }).await;
    fixture.must("expand the file system", kubelet.expand(&volume, &published)).await;
    let snapshot = format!("snapshot-{name}");
    let snapshot = fixture.co.snapshot_ready(&snapshot, &volume.id);
    let snapshot = fixture.must("snapshot", snapshot).await;
    fixture.must("delete the snapshot", fixture.co.delete_snapshot(&snapshot.id)).await;
    volume
}

/// Makes a volume in whose file system the kernel meets an error, and has kubelet ask about it.
async fn damaged(fixture: &Fixture) -> Volume {
    let (volume, attachment) = fixture.attached(&Claim::filesystem("pvc-damaged", "ext4", 1)).await;
    let published = fixture.published(&volume, &attachment, "pod-1").await;
    let device = published.metadata().expect("a file system").dev();
    let trigger = format!("/sys/fs/ext4/loop{}/trigger_fs_error", rustix::fs::minor(device));
    std::fs::write(trigger, "made by a test").expect("an error");
    fixture.must("stats", fixture.kubelets[0].stats(&volume, &published)).await;
    volume
}

/// Replaces a dashboard's variables by these values, as Grafana does.
fn substitute(query: &str, values: &BTreeMap<String, String>) -> String {
    // Longer than all that happens here, so that each increase is within it.
    let mut query = query.replace("$__rate_interval", "5m");
    for (name, value) in values {
        query = query.replace(&format!("${name}"), value);
    }
    assert!(!query.contains('$'), "{query}");
    query
}

/// Returns the queries of a dashboard, with all values that Grafana offers for its variables.
async fn queries_of(prometheus: &Prometheus, file: &str, board: &Value) -> Vec<Query> {
    let mut values = BTreeMap::new();
    for variable in board["templating"]["list"].as_array().expect("variables") {
        let name = variable["name"].as_str().expect("a name");
        let Some(query) = variable["query"]["query"].as_str() else { continue };
        let query = substitute(query, &values);
        let inner = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
        let (selector, label) = inner.and_then(|it| it.rsplit_once(", ")).expect("label_values");
        let found = prometheus.label_values(selector, label).await.expect("the variable's query");
        assert!(!found.is_empty(), "{file}: nothing to choose for {name}: {query}");
        values.insert(name.to_owned(), format!("({})", found.join("|")));
    }
    let queries = dashboards::queries(board).into_iter();
    let query = |it: &str| Query { of: file.to_owned(), asked: substitute(it, &values) };
    queries.map(query).collect()
}

/// Returns an alert's expression with `bool` in each of its comparisons: it has a value for each
/// series that is compared, 1 where the alert would be active.
fn with_bool(expression: &str) -> String {
    let comparisons = [" == ", " < ", " > "];
    comparisons
        .iter()
        .fold(expression.to_owned(), |it, sign| it.replace(sign, &format!("{sign}bool ")))
}

/// Returns the queries of the alerts, once Prometheus has evaluated each without an error and that
/// of the damaged file system fires.
async fn alerts(prometheus: &Prometheus, damaged: &Volume) -> Result<Vec<Query>, String> {
    let rules = prometheus.rules().await.map_err(|e| e.to_string())?;
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let is_as_meant = |it: &&Value| {
        let is_theirs = it["name"] == "EBSFilesystemDamaged";
        let volume = &it["alerts"][0]["labels"]["volume_id"];
        it["health"] == "ok" && (!is_theirs || *volume == damaged.id)
    };
    match rules.iter().find(|it| !is_as_meant(it)) {
        Some(rule) => Err(rule.to_string()),
        None => {
            let query =
                |it: &Value| Query { of: text(&it["name"]), asked: with_bool(&text(&it["query"])) };
            Ok(rules.iter().map(query).collect())
        }
    }
}

/// Returns those queries that find a number, or find none: Grafana draws nothing for NaN.
async fn those(prometheus: &Prometheus, queries: &[&Query], find: bool) -> Vec<String> {
    let mut those = Vec::new();
    for Query { of, asked } in queries {
        let found = prometheus.query(asked).await.unwrap_or_else(|e| panic!("{of}: {e}"));
        if found.iter().any(|value| !value.is_nan()) == find {
            those.push(format!("{of}: {asked}"));
        }
    }
    those
}

fn waits_for(query: &Query) -> Option<&'static str> {
    let wait = WAITS.iter().find(|(part, _)| query.asked.contains(part));
    wait.map(|(_, event)| *event)
}

#[tokio::test]
async fn every_dashboard_query_and_alert_finds_its_series() {
    let Some(program) = repository::prepared("prometheus") else { return };
    if for_test(&["ebs-csi-node-lifecycle"]).is_none() {
        return;
    }
    let registry = tempfile::tempdir().expect("a directory");
    let one_node = Fixture::with(|options| {
        options.nodes.truncate(1);
        options.controller_arguments = vec![format!("--http-endpoint={}", TARGETS[0].address)];
        options.agent_arguments = vec![
            format!("--http-endpoint={}", TARGETS[2].address),
            "--kubelet-registration-path=/var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock"
                .to_owned(),
            format!("--plugin-registration-path={}", registry.path().display()),
        ];
    });
    let Some(mut fixture) = one_node.await else { return };
    let peer = profile::NODE_LIFECYCLE.identity.uid;
    let (socket, flags) = safe_detach(fixture.world.controller_socket(), "ec2-only", peer);
    let restarted = fixture.world.restart_controller(&flags).await;
    restarted.expect("the controller starts");
    // node-lifecycle serves its metrics although there is no API server at this address.
    let flags =
        [format!("--http-endpoint={}", TARGETS[1].address), "--identity=controller-1".to_owned()];
    let started = fixture.world.start_node_lifecycle(&socket, "http://127.0.0.1:1", &flags);
    started.expect("node-lifecycle can be started");
    let prometheus = Prometheus::start(&mut fixture.world, program, PROMETHEUS, &TARGETS);
    scraped(&fixture, &prometheus, None).await;
    // Twice, because the first count of a new series is no increase.
    let first = live(&fixture, &prometheus, "pvc-first").await;
    fixture.discard(&first, &["pod-1"]).await;
    let damaged = damaged(&fixture).await;
    let second = live(&fixture, &prometheus, "pvc-second").await;
    scraped(&fixture, &prometheus, Some(&second)).await;

    let mut queries = until(&fixture, async || alerts(&prometheus, &damaged).await).await;
    assert!(queries.len() >= 21, "{}", queries.len());
    for (file, board) in dashboards::boards() {
        queries.extend(queries_of(&prometheus, &file, &board).await);
    }
    let (waiting, expected): (Vec<_>, Vec<_>) =
        queries.iter().partition(|query| waits_for(query).is_some());
    let is_complete = async || {
        let missing = those(&prometheus, &expected, false).await;
        if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
    };
    until(&fixture, is_complete).await;
    let found = those(&prometheus, &waiting, true).await;
    assert!(found.is_empty(), "they need not wait:\n{}", found.join("\n"));
    for query in waiting {
        let event = waits_for(query).unwrap_or_default();
        println!("{}: {} finds nothing until {event}", query.of, query.asked);
    }
    for (part, _) in WAITS {
        let is_asked = queries.iter().any(|query| query.asked.contains(part));
        assert!(is_asked, "no query has {part}");
    }
    for volume in [damaged, second] {
        fixture.discard(&volume, &["pod-1"]).await;
    }
    fixture.finish().await;
}
