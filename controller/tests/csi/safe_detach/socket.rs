//! The SafeDetach socket: its requests and reports, and their effect on a detach.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebs_csi_controller::safe_detach::Mode;
use ebs_csi_proto::safe_detach::instance_types_client::InstanceTypesClient;
use ebs_csi_proto::safe_detach::safe_detach_client::SafeDetachClient;
use ebs_csi_proto::safe_detach::{
    Agent, AttachLimitsRequest, BreakGlassRequest, FenceRequest, Node, Outcome,
    QueryInstancesRequest, QueryRequest, Report, Subject, Verdict, agent, query_response,
};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::driver::{
    Driver, NODE_1, NODE_2, assert_refused, served, unpublish, with_latency, within,
};
use crate::safe_detach::{attached, instances, refused, two_nodes};

async fn enforce() -> Driver {
    Driver::under(Mode::Enforce, two_nodes()).await
}

/// Returns a node that is ready, renewed its lease just now, and uses no volume.
fn ready() -> Node {
    Node {
        name: "node-1".to_owned(),
        provider_id: format!("aws:///us-east-1a/{NODE_1}"),
        ready: true,
        lease_age_ms: Some(10),
        boot_id: "boot-1".to_owned(),
        ..Node::default()
    }
}

/// Answers every question with these Node objects until the driver ends, and counts the questions.
async fn observe(driver: &Driver, nodes: Vec<Node>) -> (Arc<AtomicU64>, JoinHandle<()>) {
    let (reports, stream) = tokio::sync::mpsc::channel(8);
    // Reports that answer no question have no effect.
    for ask in 0..4 {
        let nodes = vec![ready()];
        reports.send(Report { ask, nodes }).await.unwrap();
    }
    let mut client = driver.safe_detach.clone();
    let questions = client.observe(ReceiverStream::new(stream)).await.unwrap();
    let mut questions = questions.into_inner();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let answering = tokio::spawn(async move {
        while let Ok(Some(question)) = questions.message().await {
            assert_eq!(question.instance_id, NODE_1);
            assert!(question.volume_id.starts_with("vol-") && question.attached_at.ends_with('Z'));
            counted.fetch_add(1, Ordering::SeqCst);
            let nodes = nodes.clone();
            let _ = reports.send(Report { ask: question.ask, nodes }).await;
        }
    });
    (count, answering)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_instance_detach_requires_node_confirmation() {
    let driver = enforce().await;
    let id = attached(&driver).await;
    let named = || vec![format!("kubernetes.io/csi/ebs.csi.aws.com^{id}")];
    let other = || vec!["kubernetes.io/csi/ebs.csi.aws.com^vol-0ccccccccccccccc3".to_owned()];
    let rows = [
        ("in-use", vec![Node { volumes_in_use: named(), ..ready() }]),
        ("in-use", vec![Node { volumes_attached: named(), ..ready() }]),
        ("node-not-ready", vec![Node { ready: false, ..ready() }]),
        ("no-report", vec![Node { lease_age_ms: None, ..ready() }]),
        ("no-report", vec![Node { lease_age_ms: Some(41_000), ..ready() }]),
        ("no-report", vec![Node { provider_id: format!("aws:///us-east-1a/{NODE_2}"), ..ready() }]),
        ("no-report", vec![ready(), ready()]),
        ("no-report", vec![]),
    ];
    for (token, nodes) in rows {
        let (questions, answering) = observe(&driver, nodes).await;
        refused(driver.unpublish(&id, NODE_1).await, token);
        assert_eq!(questions.load(Ordering::SeqCst), 1, "{token}");
        stop_observing(&driver, answering).await;
    }
    assert_eq!(driver.world.calls("DetachVolume"), 0);
    let nodes = vec![Node { volumes_in_use: other(), volumes_attached: other(), ..ready() }];
    let _observer = observe(&driver, nodes).await;
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.world.calls("DetachVolume"), 1);
    driver.publish(&id, NODE_2).await.unwrap();
    driver.check_invariants();
}

/// Returns the answer of that node's agent.
fn agent(state: agent::State, promised: bool) -> Option<Agent> {
    let (instance_id, boot_id) = (NODE_1.to_owned(), "boot-1".to_owned());
    Some(Agent { state: state.into(), instance_id, boot_id, promised })
}

/// The kernel's answer counts where the agent has one: it refuses what kubelet's lists do not show,
/// and frees what only they show once the node has promised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kernels_answer_overrules_kubelets_lists() {
    use agent::State;
    let driver = enforce().await;
    let id = attached(&driver).await;
    let named = || vec![format!("kubernetes.io/csi/ebs.csi.aws.com^{id}")];
    let old = |state, promised| Node { created: Some(0), agent: agent(state, promised), ..ready() };
    let another_boot = Node { boot_id: "boot-2".to_owned(), ..old(State::Free, true) };
    let rows = [
        ("in-use", old(State::Held, false)),
        ("in-use", old(State::Busy, true)),
        ("in-use", Node { volumes_attached: named(), ..old(State::Free, false) }),
        ("no-report", old(State::Unspecified, true)),
        ("no-report", another_boot),
    ];
    for (token, node) in rows {
        let (_, answering) = observe(&driver, vec![node]).await;
        refused(driver.unpublish(&id, NODE_1).await, token);
        stop_observing(&driver, answering).await;
    }
    // Kubelet wants the volume again: the call waits for the promise, and sends nothing.
    let wanted = Node { volumes_in_use: named(), ..old(State::Free, false) };
    let (questions, answering) = observe(&driver, vec![wanted]).await;
    let waiting = unpublish(&id, NODE_1);
    let ended = driver.client.clone().controller_unpublish_volume(within(waiting, 3)).await;
    assert_eq!(ended.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(questions.load(Ordering::SeqCst) >= 2, "asked again and again");
    assert_eq!(driver.world.calls("DetachVolume"), 0);
    stop_observing(&driver, answering).await;
    let promised = Node {
        ready: false,
        lease_age_ms: None,
        volumes_in_use: named(),
        ..old(State::Free, true)
    };
    let _observer = observe(&driver, vec![promised]).await;
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.world.calls("DetachVolume"), 1);
    driver.check_invariants();
}

/// Ends the observer. From then on an unpublish is refused at once.
async fn stop_observing(driver: &Driver, answering: JoinHandle<()>) {
    answering.abort();
    let _ = answering.await;
    while metric(driver, "aws_ebs_csi_safe_detach_observers") != Some(0.0) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn metric(driver: &Driver, name: &str) -> Option<f64> {
    let text = driver.metrics();
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

async fn query(driver: &Driver, id: &str, node: &str) -> (query_response::Answer, Verdict) {
    let subject = Subject { volume_id: id.to_owned(), instance_id: node.to_owned() };
    let request = QueryRequest { subjects: vec![subject.clone()] };
    let answer = driver.safe_detach.clone().query(within(request, 30)).await.unwrap();
    let [answer] = <[_; 1]>::try_from(answer.into_inner().answers).unwrap();
    assert_eq!(answer.subject, Some(subject));
    let verdict = answer.verdict.clone().unwrap();
    (answer, verdict)
}

async fn query_instances(driver: &Driver, ids: &[&str]) -> Vec<(Outcome, String, String)> {
    let request = QueryInstancesRequest {
        instance_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..QueryInstancesRequest::default()
    };
    let answer = driver.safe_detach.clone().query_instances(within(request, 30)).await.unwrap();
    let answers = answer.into_inner().answers;
    let answered: Vec<_> = answers.iter().map(|a| a.instance_id.as_str()).collect();
    assert_eq!(answered, ids, "in their order");
    answers
        .into_iter()
        .map(|a| {
            let verdict = a.verdict.unwrap();
            (verdict.outcome(), verdict.token, a.launch_time)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_reports_detach_verdict_and_changes_nothing() {
    let driver = enforce().await;
    let id = attached(&driver).await;
    let said = |verdict: &Verdict| (verdict.outcome(), verdict.token.clone());
    let want = |outcome, token: &str| (outcome, token.to_owned());

    // DescribeVolumes fails, so only the instance shows the volume.
    driver.world.deny("DescribeVolumes");
    let (answer, verdict) = query(&driver, &id, NODE_1).await;
    assert_eq!(said(&verdict), want(Outcome::Refuse, "no-report"));
    driver.world.clear_faults();
    assert_eq!(verdict.instance_state, "running");
    assert!(verdict.text.starts_with("SafeDetachRefused/no-report: volume "), "{}", verdict.text);
    assert!(!answer.attached_since.is_empty());
    let (answer, verdict) = query(&driver, &id, NODE_2).await;
    assert_eq!(said(&verdict), want(Outcome::Done, "no-attachment"));
    assert_eq!(answer.attached_since, "");

    let nobody = "i-0eeeeeeeeeeeeeee5";
    let [one, two, none] =
        <[_; 3]>::try_from(query_instances(&driver, &[NODE_1, NODE_2, nobody]).await).unwrap();
    assert_eq!((one.0, one.1.as_str()), (Outcome::Refuse, "running"));
    assert!(!one.2.is_empty());
    assert_eq!((two.0, two.1.as_str()), (Outcome::Refuse, "running"));
    assert_eq!((none.0, none.1.as_str()), (Outcome::Refuse, "instance-missing"));

    let steps = [
        ("hibernate", Outcome::Refuse, "hibernated"),
        ("start", Outcome::Refuse, "no-report"),
        ("stop", Outcome::Safe, "stopped"),
        ("terminate", Outcome::Done, "no-attachment"),
    ];
    for (what, outcome, token) in steps {
        driver.world.power(NODE_1, what);
        let (_, verdict) = query(&driver, &id, NODE_1).await;
        assert_eq!(said(&verdict), want(outcome, token), "{what}");
        let whole = &query_instances(&driver, &[NODE_1]).await[0];
        let token = match what {
            "start" => "running",
            "terminate" => "terminated",
            _ => token,
        };
        assert_eq!(whole.1, token, "{what}");
    }
    assert_eq!(driver.world.calls("DetachVolume"), 0);
    assert_eq!(driver.world.calls("StopInstances"), 0);
}

/// Reads that show neither the volume nor the instance may have a gap, so nothing is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_of_hidden_volume_and_instance_is_unknown() {
    let driver = enforce().await;
    let id = attached(&driver).await;
    driver.world.refuse("DescribeVolumes", "InvalidVolume.NotFound", 400);
    driver.world.refuse("DescribeInstances", "InvalidInstanceID.NotFound", 400);
    let (_, verdict) = query(&driver, &id, NODE_1).await;
    assert_eq!((verdict.outcome(), &*verdict.token), (Outcome::Refuse, "attachment-unknown"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_for_150_instances_needs_1_describe_call() {
    let ids: Vec<_> = (0..150).map(|n| format!("i-0aaaaaaaaaaaaa{n:03}")).collect();
    let driver = Driver::under(Mode::Enforce, instances(&ids)).await;
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    // The first query learns the zone; instances of one known zone share a call.
    query_instances(&driver, &ids).await;
    let calls = || (driver.world.calls("DescribeInstances"), driver.world.calls("DescribeVolumes"));
    let before = calls();
    let answers = query_instances(&driver, &ids).await;
    assert!(answers.iter().all(|(outcome, ..)| *outcome == Outcome::Refuse));
    assert_eq!(calls(), (before.0 + 1, before.1));
    let subjects = ids.iter().map(|id| Subject {
        volume_id: "vol-0eeeeeeeeeeeeeee5".to_owned(),
        instance_id: (*id).to_owned(),
    });
    let request = QueryRequest { subjects: subjects.collect() };
    let answer = driver.safe_detach.clone().query(within(request, 30)).await.unwrap();
    assert_eq!(answer.into_inner().answers.len(), 150);
    assert_eq!(calls(), (before.0 + 2, before.1 + 1));
}

async fn break_glass(driver: &Driver, id: &str, since: &str) -> Code {
    let request = BreakGlassRequest {
        subject: Some(Subject { volume_id: id.to_owned(), instance_id: NODE_1.to_owned() }),
        attached_since: since.to_owned(),
        ordered_by: "a test".to_owned(),
    };
    let answer = driver.safe_detach.clone().break_glass(within(request, 5)).await;
    answer.map_or_else(|refused| refused.code(), |_| Code::Ok)
}

/// Returns, for each DetachVolume that reached EC2, whether it was sent with Force.
fn forced(driver: &Driver) -> Vec<bool> {
    driver.world.requests("DetachVolume").iter().map(|sent| sent["Force"] == "true").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_glass_frees_only_named_attachment() {
    let driver = enforce().await;
    let id = attached(&driver).await;
    let since = query(&driver, &id, NODE_1).await.0.attached_since;
    let unasked = break_glass(&driver, &id, &since).await;
    assert_eq!(unasked, Code::FailedPrecondition, "no order lies ready for a volume in use");
    refused(driver.unpublish(&id, NODE_1).await, "no-report");
    assert_eq!(break_glass(&driver, &id, "2020-01-01T00:00:00Z").await, Code::Ok);
    refused(driver.unpublish(&id, NODE_1).await, "no-report");
    assert_eq!(break_glass(&driver, &id, &since).await, Code::Ok);
    assert_eq!(query(&driver, &id, NODE_1).await.1.token, "break-glass");
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(forced(&driver), [false], "a plain detach was enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_glass_forces_stuck_detach_once() {
    let driver = enforce().await;
    let id = attached(&driver).await;
    driver.world.fault_once("DetachVolume", &json!({ "kind": "stuck_detach", "busy": true }));
    let _observer = observe(&driver, vec![ready()]).await;
    let request = unpublish(&id, NODE_1);
    let stuck = driver.client.clone().controller_unpublish_volume(within(request, 2)).await;
    assert_eq!(stuck.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(query(&driver, &id, NODE_1).await.1.token, "leaving");
    assert_eq!(forced(&driver), [false]);
    let since = query(&driver, &id, NODE_1).await.0.attached_since;
    // The operation that still waits sees the override order.
    assert_eq!(break_glass(&driver, &id, &since).await, Code::Ok);
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(forced(&driver), [false, true]);
    assert_eq!(metric(&driver, "aws_ebs_csi_safe_detach_forced_total"), Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlisted_peer_gets_permission_denied() {
    let driver = enforce().await;
    let folder = tempfile::tempdir().unwrap();
    let another = rustix::process::getuid().as_raw() + 1;
    let channel = served(&driver.controller, folder.path(), another).await;
    let mut types = InstanceTypesClient::new(channel.clone());
    let refused = types.attach_limits(AttachLimitsRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let mut client = SafeDetachClient::new(channel);
    let refused = client.query_instances(QueryInstancesRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert_refused(client.fence(FenceRequest::default()).await, Code::PermissionDenied, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpublish_succeeds_only_when_ec2_shows_detached() {
    for mode in [Mode::Off, Mode::Ec2Only, Mode::Enforce] {
        let driver = Driver::under(mode, with_latency("detach", 1500)).await;
        let _observer = match mode {
            Mode::Enforce => Some(observe(&driver, vec![ready()]).await),
            Mode::Off | Mode::Ec2Only => None,
        };
        let id = attached(&driver).await;
        let is_attached = || {
            let volumes = driver.world.volumes();
            let volume = volumes.iter().find(|v| v["id"] == *id).expect("the volume exists");
            !volume["attachments"].as_array().expect("a list").is_empty()
        };
        assert!(is_attached());
        driver.unpublish(&id, NODE_1).await.unwrap();
        assert!(!is_attached(), "{mode}: OK came before EC2 had detached");
        // Nothing is remembered: each call reads again.
        let looks = || driver.world.calls("DescribeVolumes");
        let before = looks();
        driver.unpublish(&id, NODE_1).await.unwrap();
        assert!(looks() > before, "{mode}");
        driver.world.deny("DescribeVolumes");
        driver.unpublish(&id, NODE_1).await.unwrap_err();
    }
}
