//! Counts the requests and actions of one round, with an API server and a controller of the test's
//! own.

mod api;
mod controller;
mod leader;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_node_lifecycle::cluster::{LeaseAges, Tables, watch_agent_pods};
use ebs_csi_node_lifecycle::context::Context;
use ebs_csi_node_lifecycle::controller_client::Controller as Client;
use ebs_csi_node_lifecycle::controller_client::node_reports::NodeReports;
use ebs_csi_node_lifecycle::detach_retries::DetachRetries;
use ebs_csi_node_lifecycle::events::EventSender;
use ebs_csi_node_lifecycle::failover::{Failover, Fencing};
use ebs_csi_node_lifecycle::flags::Fence;
use ebs_csi_node_lifecycle::leader::Leader;
use ebs_csi_node_lifecycle::onboarding::agent_annotations::{AgentAnnotations, AnnotationSwitches};
use ebs_csi_safe_detach::Refusal;
use ebs_csi_safe_detach::lifecycle::{FailoverMode, FenceWhen};
use serde_json::Value;
use tokio::task::JoinHandle;

use api::{ApiServer, SharedApiServer, lock};
use controller::Controller;

const EVERY: Duration = Duration::from_secs(3);

/// Longer than any test runs on any machine.
const LONG: Duration = Duration::from_secs(3600);

struct World {
    failover: Failover,
    controller: Controller,
    api: SharedApiServer,
    /// The task that writes the events, which ends when all are written.
    event_writer: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl World {
    /// Returns the events, once all are written.
    async fn events_after(self, retries: DetachRetries) -> Vec<Value> {
        drop((retries, self.failover));
        self.event_writer.await.expect("all events are written");
        lock(&self.api).events.clone()
    }
}

/// Returns a process that leads and whose tables are complete; of `nodes`, the first `lost` are not
/// Ready.
async fn world(nodes: usize, lost: usize, fresh: Duration) -> World {
    world_of(ApiServer::of(nodes, lost), fresh).await
}

async fn world_of(api: SharedApiServer, fresh: Duration) -> World {
    let client = api::client(&api);
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("safe-detach.sock");
    let controller = Controller::serve(&socket);
    let tables = Arc::new(Tables::default());
    let watches = tables.watch_nodes(&client).into_iter();
    watches
        .chain(tables.watch_volumes_and_pods(&client))
        .for_each(|watch| drop(tokio::spawn(watch)));
    let leader = Leader::new(client.clone(), "kube-system", "one".to_owned(), LONG);
    let election = tokio::spawn(Arc::clone(&leader).run());
    while !(leader.is_leader() && tables.are_complete()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The renewals of the Lease would be counted.
    election.abort();
    let (events, event_writer) = EventSender::new(client.clone(), "one".to_owned());
    let event_writer = tokio::spawn(event_writer.run());
    lock(&api).clear_counts();
    let context = Context {
        client,
        namespace: "kube-system".to_owned(),
        tables,
        controller: Client::new(socket),
        leader,
        metrics: Arc::default(),
        events: Arc::new(events),
    };
    let fencing = Fencing { power_off: Fence::Off, when: FenceWhen::Impaired };
    let mut failover = Failover::new(context, FailoverMode::ProveFirst, fencing, LONG, EVERY);
    failover.answer_validity = fresh;
    World { failover, controller, api, event_writer, _directory: directory }
}

#[tokio::test]
async fn round_with_200_proofs_queries_twice_records_once() {
    // As many as the brake admits of so many nodes.
    let world = world(4_000, 200, LONG).await;
    let next = world.failover.round().await;
    assert_eq!(world.controller.queries(), 2, "one query, and a second one");
    let api = lock(&world.api);
    assert_eq!(api.count("PUT leases"), 1, "before anything is done");
    assert_eq!(api.count("GET nodes"), 200, "each is read again");
    assert_eq!(api.count("PATCH nodes"), 200, "and has our taint");
    assert_eq!(next, EVERY, "no act was postponed");
}

/// Kubernetes' own pod garbage collector looks every 20 s only.
#[tokio::test]
async fn round_deletes_evicted_pod_of_tainted_node() {
    let api = ApiServer::of(40, 1);
    lock(&api).evict(0);
    let world = world_of(api, LONG).await;
    world.failover.round().await;
    let api = lock(&world.api);
    assert_eq!(api.count("PATCH nodes"), 0, "the taint is there already");
    assert_eq!(api.count("PATCH pods"), 1, "its phase becomes Failed");
    assert_eq!(api.count("DELETE pods"), 1);
    assert_eq!(api.count("DELETE volumeattachments"), 0, "Kubernetes' task");
}

#[tokio::test]
async fn stale_answer_adds_no_taint_and_retries_immediately() {
    let world = world(40, 2, Duration::ZERO).await;
    let next = world.failover.round().await;
    assert_eq!(world.controller.queries(), 2);
    let api = lock(&world.api);
    assert_eq!(api.count("GET nodes"), 2);
    assert_eq!(api.count("PATCH nodes"), 0, "all answers are too old");
    assert_eq!(next, Duration::ZERO);
}

/// EC2 takes 200 instances in one request, so the suspects need two turns.
#[tokio::test]
async fn round_interval_halves_with_201_suspects() {
    let world = world(900, 201, LONG).await;
    let next = world.failover.round().await;
    assert_eq!(next, EVERY / 2);
}

/// Returns the retries, which run beside that failover, and without any failover as well. The
/// leases of these nodes are fresh.
fn retries_of(failover: &Failover, alive: &[&str]) -> DetachRetries {
    let context = failover.context.clone();
    let ages = LeaseAges::default();
    for node in alive {
        ages.observe(node, None, Instant::now());
        ages.observe(node, Some(jiff::Timestamp::UNIX_EPOCH), Instant::now());
    }
    let node_reports = NodeReports::new(&context, Arc::new(ages), Vec::new());
    DetachRetries::new(context, node_reports)
}

#[tokio::test]
async fn refused_detach_emits_event_once_on_attachment() {
    let api = ApiServer::of(3, 0);
    lock(&api).refuse(1, "in-use");
    let world = world_of(api, LONG).await;
    let mut retries = retries_of(&world.failover, &[]);
    retries.check_refused().await;
    retries.check_refused().await;
    let events = world.events_after(retries).await;
    let said: Vec<_> =
        events.iter().map(|event| (&event["reason"], &event["regarding"]["name"])).collect();
    assert_eq!(said, [(&"SafeDetachRefused".into(), &"csi-0001".into())]);
    let note = events[0]["note"].as_str().unwrap_or_default();
    assert!(note.contains("in-use"), "{note}");
    assert_eq!(events[0]["regarding"]["kind"], "VolumeAttachment");
}

/// Two pods of one name wait, the second one on another node than the one that has its volume.
#[tokio::test]
async fn waiting_pod_gets_refusal_and_way_out_once() {
    let api = ApiServer::of(3, 0);
    lock(&api).refuse(1, "in-use");
    lock(&api).refuse(2, "in-use");
    lock(&api).add_pending_pod("default", 1, 1);
    lock(&api).add_pending_pod("elsewhere", 0, 2);
    let world = world_of(api, LONG).await;
    let mut retries = retries_of(&world.failover, &[]);
    retries.check_refused().await;
    annotations_of(&world.failover).await.annotate_pods().await;
    retries.check_refused().await;
    let events = world.events_after(retries).await;
    let of_pods: Vec<_> =
        events.iter().filter(|event| event["regarding"]["kind"] == "Pod").collect();
    let said: BTreeSet<_> = of_pods
        .iter()
        .map(|event| [&event["regarding"]["namespace"], &event["reason"]].map(Value::to_string))
        .collect();
    let want = ["default", "elsewhere"].map(|of| [of, "WaitsForRefusedDetach"]);
    let quoted = |words: [&str; 2]| words.map(|word| format!("\"{word}\""));
    assert_eq!(said, want.map(quoted).into());
    assert_eq!(of_pods.len(), 2, "{of_pods:?}");
    for event in of_pods {
        let note = event["note"].as_str().unwrap_or_default();
        let here = event["regarding"]["namespace"] == "default";
        let words = match here {
            true => ["in-use", "VolumeAttachment csi-0001", "ebs.csi.aws.com/break-glass"],
            false => ["in-use", "VolumeAttachment csi-0002", "node-0002"],
        };
        assert!(words.iter().all(|word| note.contains(word)), "{note}");
    }
}

/// Without a lease renewal there is no report about the node, so the controller's proof, read in
/// every second round, starts the retry.
#[tokio::test]
async fn refused_detach_on_ready_node_is_retried() {
    let api = ApiServer::of(3, 0);
    lock(&api).refuse(1, "no-report");
    let world = world_of(api, LONG).await;
    let mut retries = retries_of(&world.failover, &[]);
    // Every second round queries the controller, which answers that the instance is off.
    assert_eq!(retries.check_refused().await, 0);
    assert_eq!(world.controller.queries(), 0);
    assert_eq!(retries.check_refused().await, 1);
    assert_eq!(world.controller.queries(), 1);
    // The next attempt may be refused as well, so not every round triggers one.
    assert_eq!(retries.check_refused().await + retries.check_refused().await, 0);
    let api = lock(&world.api);
    assert_eq!(api.count("PATCH volumeattachments"), 1);
    assert_eq!(api.count("GET nodes"), 2, "each round reads the node");
}

/// Whatever was refused, and whatever kubelet still reports: once the controller would detach, the
/// detach is retried in the second round at the latest.
#[tokio::test]
async fn every_refusal_is_retried_once_controller_would_detach() {
    let refusals = Refusal::ALL.into_iter().map(Refusal::token);
    for (token, alive) in refusals.flat_map(|token| [(token, true), (token, false)]) {
        let api = ApiServer::of(3, 0);
        lock(&api).use_volume(1);
        lock(&api).refuse(1, token);
        let world = world_of(api, LONG).await;
        let alive: &[&str] = if alive { &["node-0001"] } else { &[] };
        let mut retries = retries_of(&world.failover, alive);
        let retried = retries.check_refused().await + retries.check_refused().await;
        assert_eq!(retried, 1, "{token}, alive: {alive:?}");
    }
}

/// A CSINode counts only when this Node object owns it.
#[tokio::test]
async fn node_without_provider_id_fails_over_by_csinode() {
    for (owner, tainted) in [("uid-0", 1), ("uid-of-another", 0)] {
        let api = ApiServer::of(40, 1);
        lock(&api).name_by_csi_node(0, owner);
        let world = world_of(api, LONG).await;
        assert_eq!(world.failover.context.tables.unidentified().len(), 1 - tainted, "{owner}");
        world.failover.round().await;
        let api = lock(&world.api);
        assert_eq!(api.count("PATCH nodes"), tainted, "{owner}");
    }
}

/// Returns the task for the pods of the node-agents, whose table is complete.
async fn annotations_of(failover: &Failover) -> AgentAnnotations {
    let (table, watch) = watch_agent_pods(&failover.context.client, "kube-system");
    tokio::spawn(watch);
    while !table.is_complete() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let switches = AnnotationSwitches { facts: true, draining: true };
    AgentAnnotations::new(failover.context.clone(), vec![table], switches)
}

/// The watch shows no patched pod here, so the second round must remember the first.
#[tokio::test]
async fn joined_node_without_zone_costs_1_patch() {
    let api = ApiServer::of(40, 0);
    for number in 0..40 {
        lock(&api).agent_pod(number, number >= 30);
    }
    let world = world_of(api, LONG).await;
    let mut annotations = annotations_of(&world.failover).await;
    lock(&world.api).clear_counts();
    annotations.annotate_pods().await;
    annotations.annotate_pods().await;
    let api = lock(&world.api);
    assert_eq!(api.count("PATCH pods"), 30, "none where the zone was copied");
    assert_eq!(api.count_all(), 30, "and there is no other request");
}

/// The controller knows one of the two types.
#[tokio::test]
async fn limit_costs_1_patch_and_type_1_question() {
    let api = ApiServer::of(40, 0);
    for number in 0..40 {
        lock(&api).agent_pod(number, true);
        let instance_type = if number < 30 { "z9.large" } else { "z9.metal" };
        lock(&api).set_instance_type(number, instance_type);
    }
    let world = world_of(api, LONG).await;
    let mut annotations = annotations_of(&world.failover).await;
    lock(&world.api).clear_counts();
    while lock(&world.api).count("PATCH pods") == 0 {
        annotations.annotate_pods().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    annotations.annotate_pods().await;
    assert_eq!(world.controller.asked_types(), 2);
    let api = lock(&world.api);
    assert_eq!(api.count("PATCH pods"), 30);
    assert_eq!(api.count_all(), 30, "and there is no other request");
}

#[tokio::test]
async fn refused_patch_is_counted_and_not_repeated() {
    let api = ApiServer::of(3, 0);
    for number in 0..3 {
        lock(&api).agent_pod(number, false);
    }
    lock(&api).forbidden = true;
    let world = world_of(api, LONG).await;
    let mut annotations = annotations_of(&world.failover).await;
    annotations.annotate_pods().await;
    annotations.annotate_pods().await;
    assert_eq!(lock(&world.api).count("PATCH pods"), 1);
    let failed = "aws_ebs_csi_onboarding_pods_annotated_total{result=\"failed\"} 1";
    let page = world.failover.context.metrics.page();
    assert!(page.lines().any(|line| line == failed), "{page}");
}
