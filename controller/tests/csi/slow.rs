//! What takes minutes, under virtual time: the service is called without a socket.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_controller::csi::service::{Controller, ServiceSettings};
use ebs_csi_controller::safe_detach::Mode;
use ebs_csi_ec2::Ec2;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_server::Controller as Service;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::{Code, Request, Status};

use crate::driver::{
    self, CreateRequest, NODE_1, assert_refused, assert_status, publish, unpublish, volume,
};
use crate::world::in_process::InProcess;
use crate::world::merged;

pub(crate) struct Slow {
    pub(crate) world: InProcess,
    pub(crate) controller: Controller,
    safe_detach: Mode,
}

impl Slow {
    pub(crate) async fn new(over: Value) -> Self {
        Self::under(Mode::Off, over).await
    }

    /// Like [`Slow::new`], with a volume. Returns also the volume's id.
    pub(crate) async fn with_volume(over: Value) -> (Self, String) {
        let slow = Self::new(over).await;
        let id = slow.create("pvc-1").await.unwrap();
        (slow, id)
    }

    pub(crate) async fn under(safe_detach: Mode, over: Value) -> Self {
        let whole = json!({
            "profile": "fast",
            "instances": [{ "id": NODE_1, "type": "m5.large", "zone": "us-east-1a" }],
        });
        let world = InProcess::new(merged(whole, over));
        let access = world.access(1).await;
        Self { controller: started(access, safe_detach), world, safe_detach }
    }

    /// Starts another process, which knows nothing of what this one did.
    pub(crate) async fn another(&self, number: u64) -> Controller {
        started(self.world.access(number).await, self.safe_detach)
    }

    pub(crate) async fn create(&self, name: &str) -> Result<String, Status> {
        Ok(create(&self.controller, volume(name, 1)).await?.volume_id)
    }

    pub(crate) async fn publish(&self, id: &str) -> Result<(), Status> {
        let request = Request::new(publish(id, NODE_1));
        self.controller.controller_publish_volume(request).await.map(drop)
    }

    pub(crate) async fn unpublish(&self, id: &str) -> Result<(), Status> {
        let request = unpublish(id, NODE_1);
        self.controller.controller_unpublish_volume(Request::new(request)).await.map(drop)
    }

    /// Ends a call as soon as its first request of this action was sent, and checks that no second
    /// one follows.
    async fn abandon<T>(&self, action: &str, call: impl Future<Output = T>) {
        let is_sent = async {
            while self.calls(action) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            biased;
            _ = call => panic!("the call did not wait for {action}"),
            () = is_sent => {}
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(self.calls(action), 1, "{action}");
    }

    /// Returns the number of requests of an action that reached EC2.
    pub(crate) fn calls(&self, action: &str) -> usize {
        let wanted = format!("Action={action}&");
        let log = self.world.log_lines();
        log.iter().filter(|line| line.contains(&wanted)).count()
    }

    pub(crate) fn live(&self, what: &str) -> Value {
        self.world.report()["live"][what].clone()
    }
}

fn started(access: Ec2, safe_detach: Mode) -> Controller {
    let settings = ServiceSettings { safe_detach, ..ServiceSettings::default() };
    Controller::new(access, settings, Arc::default())
}

pub(crate) async fn create(
    controller: &Controller,
    request: csi::CreateVolumeRequest,
) -> Result<csi::Volume, Status> {
    let answer = controller.create_volume(Request::new(request)).await?;
    Ok(answer.into_inner().volume.unwrap())
}

/// Returns a scenario in which EC2 answers so many requests of an action with this fault.
fn with_fault(action: &str, count: u32, fault: Value) -> Value {
    json!({ "faults": [{ "match": { "action": action }, "count": count, "fault": fault }] })
}

#[tokio::test(start_paused = true)]
async fn stuck_attach_is_undone_after_90_seconds() {
    let stuck = with_fault("AttachVolume", 1, json!({ "kind": "stuck_attach" }));
    let (slow, id) = Slow::with_volume(stuck).await;
    let begin = Instant::now();
    let stuck = slow.publish(&id).await.unwrap_err();
    let took = begin.elapsed();
    assert_status(&stuck, Code::Aborted, &["90 s"]);
    // The Go driver's polling schedule notices it at 136 s.
    assert!((90..100).contains(&took.as_secs()), "{took:?}");
    assert_eq!(slow.calls("DetachVolume"), 1);
    slow.publish(&id).await.unwrap();
    assert_eq!(slow.calls("AttachVolume"), 2);
    assert_eq!(slow.live("attachments"), 1);
}

#[tokio::test(start_paused = true)]
async fn stuck_attach_detach_is_refused_in_enforce_mode() {
    for (mode, detaches) in [(Mode::Ec2Only, 1), (Mode::Enforce, 0)] {
        let stuck = with_fault("AttachVolume", 1, json!({ "kind": "stuck_attach" }));
        let slow = Slow::under(mode, stuck).await;
        let id = slow.create("pvc-1").await.unwrap();
        let stuck = slow.publish(&id).await.unwrap_err();
        assert_status(&stuck, Code::Aborted, &["90 s"]);
        // The instance runs, and there is no report about its node.
        let refused = stuck.message().contains("it is not detached: SafeDetachRefused/");
        assert_eq!(refused, detaches == 0, "{mode}: {stuck}");
        assert_eq!(slow.calls("DetachVolume"), detaches, "{mode}");
    }
}

/// By then the caller may have asked another process for the opposite.
#[tokio::test(start_paused = true)]
async fn throttled_call_is_not_resent_after_caller_leaves() {
    let throttled = |action: &str| {
        json!({ "match": { "action": action }, "count": 2, "fault": {
            "kind": "error", "code": "RequestLimitExceeded", "status": 503 } })
    };
    let faults = ["AttachVolume", "DetachVolume", "CreateSnapshot"].map(throttled);
    let (slow, id) = Slow::with_volume(json!({ "faults": faults })).await;
    slow.abandon("AttachVolume", slow.publish(&id)).await;
    assert_eq!(slow.live("attachments"), 0);
    slow.publish(&id).await.unwrap();
    slow.abandon("DetachVolume", slow.unpublish(&id)).await;
    assert_eq!(slow.live("attachments"), 1);
    slow.unpublish(&id).await.unwrap();
    assert_eq!(slow.live("attachments"), 0);
    let take = || slow.controller.create_snapshot(Request::new(driver::snapshot("s", &id)));
    slow.abandon("CreateSnapshot", take()).await;
    take().await.unwrap();
    assert_eq!(slow.live("snapshots"), 1);
}

#[tokio::test(start_paused = true)]
async fn vanished_volume_is_reported_immediately_naming_kms_key() {
    // Describe calls never show the volume: it is gone before the first read.
    let vanishes = json!({ "kind": "fail_create", "outcome": "vanish", "after_ms": 0 });
    let slow = Slow::new(with_fault("CreateVolume", 1, vanishes)).await;
    let begin = Instant::now();
    let dropped = slow.create("pvc-1").await.unwrap_err();
    let took = begin.elapsed();
    assert_status(&dropped, Code::Internal, &["kmsKeyId"]);
    assert!(took < Duration::from_secs(8), "{took:?}");
    // The repeated request with the same token showed that the volume is gone; the next token is
    // used at once.
    assert_eq!(slow.calls("CreateVolume"), 2);
    slow.create("pvc-1").await.unwrap();
    assert_eq!(slow.calls("CreateVolume"), 3);
    assert_eq!(slow.live("volumes"), 1);
}

/// Volumes vanish while the KMS key is broken. A process that knows none of the used request tokens
/// then finds the same volume.
#[tokio::test(start_paused = true)]
async fn create_succeeds_after_60_vanished_volumes() {
    let vanishes = json!({ "kind": "fail_create", "outcome": "vanish", "after_ms": 300 });
    let slow = Slow::new(with_fault("CreateVolume", 60, vanishes)).await;
    let mut failures = 0;
    let id = loop {
        match slow.create("pvc-1").await {
            Ok(id) => break id,
            Err(status) => {
                assert!(matches!(status.code(), Code::Internal | Code::Aborted), "{status}");
                failures += 1;
                assert!(failures < 60, "{status}");
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        }
    };
    assert!(failures >= 20, "{failures}");
    assert_eq!(slow.live("volumes"), 1);
    // A process that knows none of the used tokens finds the same volume and makes no other.
    let again = create(&slow.another(2).await, volume("pvc-1", 1)).await.unwrap();
    assert_eq!(again.volume_id, id);
}

#[tokio::test(start_paused = true)]
async fn failed_volume_blocks_recreate_until_deleted() {
    let slow = Slow::new(json!({ "faults": [
        { "match": { "action": "CreateVolume" }, "count": 1, "fault": { "kind": "fail_create", "outcome": "error", "after_ms": 100 } },
        { "match": { "action": "DeleteVolume" }, "count": 1, "fault": { "kind": "error", "code": "UnauthorizedOperation", "status": 403 } },
    ] }))
    .await;
    assert_refused(slow.create("pvc-1").await, Code::Aborted, &["state error", "ec2:DeleteVolume"]);
    assert_refused(slow.create("pvc-1").await, Code::Internal, &[]);
    assert_eq!(slow.live("volumes"), 0);
    slow.create("pvc-1").await.unwrap();
    assert_eq!(slow.live("volumes"), 1);
}

/// With `blockAttachUntilInitialized`, each call ends with a retryable code until the data is
/// there.
#[tokio::test(start_paused = true)]
async fn publish_waits_2_hours_for_initialization_attaching_once() {
    let (slow, source) = Slow::with_volume(json!({
        "latency": { "initialize_per_gib": { "fixed_ms": 7_200_000 } },
        "faults": [{ "match": { "action": "DescribeVolumeStatus" }, "skip": 2, "count": 2, "fault": {
            "kind": "error", "code": "InternalError", "status": 500 } }],
    }))
    .await;
    let take = driver::snapshot("s", &source);
    let snapshot = loop {
        let answer = slow.controller.create_snapshot(Request::new(take.clone())).await;
        let snapshot = answer.unwrap().into_inner().snapshot.unwrap();
        if snapshot.ready_to_use {
            break snapshot.snapshot_id;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    let restore = volume("pvc-2", 1)
        .with_source(driver::from_snapshot(&snapshot))
        .with_parameters(&[("blockAttachUntilInitialized", "true")]);
    let made = create(&slow.controller, restore).await.unwrap();
    let mut request = publish(&made.volume_id, NODE_1);
    request.volume_context = made.volume_context;
    let begin = Instant::now();
    let mut answers = 0;
    loop {
        answers += 1;
        let request = driver::within(request.clone(), 360);
        let Err(status) = slow.controller.controller_publish_volume(request).await else {
            break;
        };
        match status.code() {
            Code::Aborted if answers == 2 => assert_status(&status, Code::Aborted, &["data"]),
            code => assert!(matches!(code, Code::Aborted | Code::DeadlineExceeded), "{status}"),
        }
    }
    let took = begin.elapsed();
    assert!((7_000..7_400).contains(&took.as_secs()), "{took:?}");
    assert!(answers > 10, "{answers}");
    assert_eq!(slow.calls("AttachVolume"), 1);
    // The driver calls at growing intervals.
    assert!(slow.calls("DescribeVolumeStatus") < 500);
}

#[tokio::test(start_paused = true)]
async fn lagging_reads_cause_no_duplicate_volume_or_attachment() {
    for seed in 1..=12 {
        let (slow, id) = Slow::with_volume(json!({
            "seed": seed,
            "consistency": {
                "replicas": 4, "lag": { "uniform_ms": [0, 1800] },
                "mapping_lag": { "fixed_ms": 200 }, "tag_lag": { "fixed_ms": 500 },
            },
        }))
        .await;
        for round in 0..3 {
            slow.publish(&id).await.unwrap();
            let is = format!("seed {seed}, round {round}");
            assert_eq!(slow.live("attachments"), 1, "{is}");
            slow.unpublish(&id).await.unwrap();
            assert_eq!(slow.live("attachments"), 0, "{is}");
        }
        // A read that lags far behind may cost a second request, which EC2 refuses, but never more.
        assert!((3..=6).contains(&slow.calls("AttachVolume")), "seed {seed}");
        assert_eq!(slow.create("pvc-1").await.unwrap(), id);
        assert_eq!(slow.live("volumes"), 1, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn quota_checked_before_request_token_hides_no_volume() {
    let (slow, id) = Slow::with_volume(json!({
        "quotas": { "storage_tib": { "gp3": 0.0015 }, "before_token": true },
    }))
    .await;
    assert_eq!(slow.create("pvc-1").await.unwrap(), id);
    // Another process may have had the volume made, so the refusal is not final at first.
    assert_refused(slow.create("pvc-2").await, Code::Aborted, &["quota"]);
    tokio::time::sleep(Duration::from_secs(75)).await;
    assert_refused(slow.create("pvc-2").await, Code::Internal, &["quota"]);
    assert_eq!(slow.live("volumes"), 1);
}

/// The second process cannot find the volume by its name tag yet, and the quota refuses its
/// CreateVolume.
#[tokio::test(start_paused = true)]
async fn quota_hides_no_fresh_volume_of_another_process() {
    let (slow, id) = Slow::with_volume(json!({
        "quotas": { "storage_tib": { "gp3": 0.0015 }, "before_token": true },
        "consistency": { "replicas": 1, "lag": { "fixed_ms": 0 }, "tag_lag": { "fixed_ms": 1500 } },
    }))
    .await;
    let again = create(&slow.another(2).await, volume("pvc-1", 1)).await.unwrap();
    assert_eq!(again.volume_id, id);
    assert_eq!(slow.live("volumes"), 1);
}

/// EC2 does not know the volume yet that it has just made, and one look shows it.
#[tokio::test(start_paused = true)]
async fn not_found_for_new_volume_is_not_deleted() {
    let not_found = json!({
        "kind": "error", "code": "InvalidVolume.NotFound", "status": 400,
        "message": "The volume 'vol-1' does not exist.",
    });
    let (slow, id) = Slow::with_volume(with_fault("DeleteVolume", 1, not_found)).await;
    let delete = || {
        let request = csi::DeleteVolumeRequest { volume_id: id.clone(), ..Default::default() };
        slow.controller.delete_volume(Request::new(request))
    };
    assert_refused(delete().await, Code::Aborted, &["ec2:DeleteVolume"]);
    assert_eq!(slow.live("volumes"), 1);
    delete().await.unwrap();
    assert_eq!(slow.live("volumes"), 0);
    delete().await.unwrap();
}

/// The lost CreateVolume made the volume, so a refused retry must not report that none exists.
#[tokio::test(start_paused = true)]
async fn refusal_after_lost_reply_is_not_final() {
    let refusals = ["UnauthorizedOperation", "InvalidParameterValue", "NeverHeardOf"];
    for (refusal, tag_lag) in refusals.iter().flat_map(|r| [(r, 1_500), (r, 5_000)]) {
        let slow = Slow::new(json!({
            "consistency": { "replicas": 1, "lag": { "fixed_ms": 0 }, "tag_lag": { "fixed_ms": tag_lag } },
            "faults": [
                { "match": { "action": "CreateVolume" }, "nth": 1, "fault": { "kind": "lose_reply", "how": "close", "effect": true } },
                { "match": { "action": "CreateVolume" }, "nth": 2, "fault": { "kind": "error", "code": refusal, "status": 400 } },
            ],
        }))
        .await;
        let answer = slow.create("pvc-1").await;
        assert_eq!(slow.live("volumes"), 1);
        if let Err(unclear) = answer {
            // The volume exists, but lookups by name do not show it yet.
            assert_eq!(unclear.code(), Code::Aborted, "{refusal}: {unclear}");
            assert!(tag_lag > 2_000 || *refusal == "NeverHeardOf", "{unclear}");
            slow.create("pvc-1").await.unwrap();
        }
        assert_eq!(slow.live("volumes"), 1, "{refusal}");
    }
}

/// Returns a world in which EC2 behaves like the real service: lookups by tag lag, and EC2 accepts
/// one snapshot of a volume in 15 s.
async fn lagging() -> (Slow, String) {
    let (slow, volume) = Slow::with_volume(json!({
        "quotas": { "snapshot_interval_ms": 15_000 },
        "consistency": { "replicas": 1, "lag": { "fixed_ms": 0 }, "tag_lag": { "fixed_ms": 9_000 } },
    }))
    .await;
    (slow, volume)
}

async fn snapshot(controller: &Controller, volume: &str) -> Result<String, Status> {
    let request = driver::snapshot("s", volume);
    let answer = controller.create_snapshot(Request::new(request)).await?;
    Ok(answer.into_inner().snapshot.unwrap().snapshot_id)
}

#[tokio::test(start_paused = true)]
async fn first_snapshot_of_running_process_needs_1_lookup() {
    let (slow, volume) = lagging().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    snapshot(&slow.controller, &volume).await.unwrap();
    assert_eq!(slow.calls("DescribeSnapshots"), 1);
    assert_eq!(slow.calls("CreateSnapshot"), 1);
}

#[tokio::test(start_paused = true)]
async fn standby_takeover_makes_no_second_snapshot() {
    let (slow, volume) = lagging().await;
    let standby = slow.another(2).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let taken = snapshot(&slow.controller, &volume).await.unwrap();
    // The standby's lookup by name does not show the snapshot yet; EC2 refuses a second one.
    assert_refused(snapshot(&standby, &volume).await, Code::Unavailable, &[]);
    assert_eq!(slow.calls("CreateSnapshot"), 2);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(snapshot(&standby, &volume).await.unwrap(), taken);
    assert_eq!(slow.live("snapshots"), 1);
}

#[tokio::test(start_paused = true)]
async fn new_process_waits_out_snapshot_lookup_lag() {
    let (slow, volume) = lagging().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let taken = snapshot(&slow.controller, &volume).await.unwrap();
    let successor = slow.another(2).await;
    assert_eq!(snapshot(&successor, &volume).await.unwrap(), taken);
    assert_eq!(slow.calls("CreateSnapshot"), 1);
    assert_eq!(slow.live("snapshots"), 1);
}

#[tokio::test(start_paused = true)]
async fn expired_lock_date_blocks_only_new_snapshots() {
    let (slow, volume) = Slow::with_volume(json!({})).await;
    // The simulator's time begins with the year 2026.
    let snapshot = async |name: &str| {
        let request = csi::CreateSnapshotRequest {
            parameters: driver::map(&[
                ("lockMode", "governance"),
                ("lockExpirationDate", "2026-01-03T00:00:00Z"),
            ]),
            ..driver::snapshot(name, &volume)
        };
        let answer = slow.controller.create_snapshot(Request::new(request)).await;
        answer.map(|answer| answer.into_inner().snapshot.unwrap().snapshot_id)
    };
    let first = snapshot("before").await.unwrap();
    tokio::time::sleep(Duration::from_secs(3 * 24 * 3600)).await;
    assert_eq!(snapshot("before").await.unwrap(), first);
    let late = snapshot("after").await.unwrap_err();
    assert_status(
        &late,
        Code::InvalidArgument,
        &["lockExpirationDate", "2026-01-03T00:00:00Z has passed", "no snapshot was taken"],
    );
    assert_eq!(slow.calls("CreateSnapshot"), 1);
}
