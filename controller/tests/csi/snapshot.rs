//! One snapshot for each name, and listings in pages.

mod group;

use std::collections::BTreeSet;
use std::time::Duration;

use ebs_csi_controller::csi::service::ServiceSettings;
use ebs_csi_ec2::{Call, Locked};
use ebs_csi_proto::csi;
use ebs_csi_wire::SnapshotId;
use serde_json::json;
use tonic::Code;

use crate::driver::{Driver, assert_refused, assert_status, settings};

/// Starts another process, which looks for its predecessor's snapshots for this long.
async fn waiting_process(driver: &Driver, seconds: u64) -> Driver {
    let snapshot_takeover = Duration::from_secs(seconds);
    driver.another_with(ServiceSettings { snapshot_takeover, ..settings() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_create_snapshot_replies_make_1_snapshot() {
    for fault in [
        json!({ "kind": "lose_reply", "how": "close", "effect": true }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "effect": true }),
        json!({ "kind": "garble", "how": "unparsable", "effect": true }),
    ] {
        let (driver, id) = Driver::with_volume(1).await;
        driver.world.fault_once("CreateSnapshot", &fault);
        let taken = driver.snapshot("s", &id).await.unwrap().snapshot_id;
        assert_eq!(driver.snapshot("s", &id).await.unwrap().snapshot_id, taken, "{fault}");
        let made = (driver.live("snapshots"), driver.world.calls("CreateSnapshot"));
        assert_eq!(made, (1, 1), "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_name_reused_for_another_volume_is_refused() {
    let (driver, a) = Driver::with_volume(1).await;
    let b = driver.created("pvc-2", 1).await;
    driver.snapshot("s", &a).await.unwrap();
    assert_refused(driver.snapshot("s", &b).await, Code::AlreadyExists, &[]);
    assert_eq!(driver.live("snapshots"), 1);
}

/// A snapshot class with everything that has to follow a snapshot's creation.
const LOCK_AND_FAST_RESTORE: &[(&str, &str)] = &[
    ("fastSnapshotRestoreAvailabilityZones", "us-east-1a, us-east-1b"),
    ("lockMode", "governance"),
    ("lockDuration", "1"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_snapshot_lock_leaves_no_snapshot() {
    let (driver, id) = Driver::with_volume(1).await;
    driver.world.deny("LockSnapshot");
    let refused = driver.snapshot_of_class("s", &id, LOCK_AND_FAST_RESTORE).await.unwrap_err();
    assert_status(&refused, Code::PermissionDenied, &["ec2:LockSnapshot"]);
    assert_eq!(driver.live("snapshots"), 0);
    let nowhere = [("fastSnapshotRestoreAvailabilityZones", "mars-1a")];
    let refused = driver.snapshot_of_class("s", &id, &nowhere).await.unwrap_err();
    assert_status(&refused, Code::InvalidArgument, &["mars-1a"]);
    assert_eq!(driver.live("snapshots"), 0);
    // A failing zone lookup is no reason to refuse.
    driver.world.clear_faults();
    driver.world.deny("DescribeAvailabilityZones");
    driver.snapshot_of_class("s", &id, LOCK_AND_FAST_RESTORE).await.unwrap();
    assert_eq!(driver.live("snapshots"), 1);
}

/// What the class required at creation counts, and only missing parts are set. If EC2 refuses the
/// read, both are set again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_process_completes_snapshot_lock_and_fast_restore() {
    let (driver, id) = Driver::with_volume(1).await;
    let lost = json!({ "kind": "lose_reply", "how": "close", "effect": false });
    driver.world.fault_once("LockSnapshot", &lost);
    let unknown = driver.snapshot_of_class("s", &id, LOCK_AND_FAST_RESTORE).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unavailable, "{unknown}");
    assert_eq!(driver.live("snapshots"), 1, "it stays for the next attempt");
    let calls = |action| driver.world.calls(action);
    let set = || (calls("LockSnapshot"), calls("EnableFastSnapshotRestores"));
    assert_eq!(set(), (1, 1));

    // Another process, after the class was changed: the requirements at creation count.
    let second = driver.another().await;
    let taken = second.snapshot("s", &id).await.unwrap().snapshot_id;
    assert_eq!(set(), (2, 1), "only what was missing");
    let snapshot = SnapshotId::parse(&taken).unwrap();
    let ec2 = &driver.world.ec2;
    assert_eq!(
        ec2.snapshot_lock(&Call::default(), &snapshot).await.unwrap(),
        Some(Locked::Governance)
    );
    let mut zones = ec2.fast_restore_zones(&Call::default(), &snapshot).await.unwrap();
    zones.sort_unstable();
    assert_eq!(zones, ["us-east-1a", "us-east-1b"]);

    // Nothing is missing any more, so nothing is set again.
    let third = driver.another().await;
    for _ in 0..3 {
        let again = third.snapshot_of_class("s", &id, LOCK_AND_FAST_RESTORE).await.unwrap();
        assert_eq!(again.snapshot_id, taken);
    }
    assert_eq!(set(), (2, 1));
    assert_eq!(calls("DescribeLockedSnapshots"), 3);

    // An IAM policy written for the Go driver does not allow the reads, so both are set again.
    for action in ["DescribeLockedSnapshots", "DescribeFastSnapshotRestores"] {
        driver.world.deny(action);
    }
    let fourth = driver.another().await;
    fourth.snapshot("s", &id).await.unwrap();
    assert_eq!(set(), (3, 2));
    assert_eq!(calls("CreateSnapshot"), 1);
    assert_eq!(driver.live("snapshots"), 1);
}

/// The other process's request becomes visible only after the first lookup. Later snapshots need
/// one lookup.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_snapshot_of_another_process_is_reused() {
    let (driver, id) = Driver::with_volume(1).await;
    let successor = waiting_process(&driver, 2).await;
    // The previous process's request becomes visible only after the second process's first lookup.
    let late = async {
        driver.until_called("DescribeSnapshots", 1).await;
        let parameters = json!({
            "VolumeId": id,
            "TagSpecification.1.ResourceType": "snapshot",
            "TagSpecification.1.Tag.1.Key": "CSIVolumeSnapshotName",
            "TagSpecification.1.Tag.1.Value": "s",
        });
        driver.world.as_foreign("CreateSnapshot", &parameters)
    };
    let (found, made) = tokio::join!(successor.snapshot("s", &id), late);
    let found = found.unwrap().snapshot_id;
    assert!(made.contains(&found), "{found}: {made}");
    assert_eq!(driver.live("snapshots"), 1);
    // Later snapshots do not wait: there is one lookup and one request.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let looks = driver.world.calls("DescribeSnapshots");
    successor.snapshot("t", &id).await.unwrap();
    assert_eq!(driver.world.calls("DescribeSnapshots"), looks + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lagging_lookup_after_crash_makes_no_second_snapshot() {
    let lagging = json!({ "consistency": {
        "replicas": 1, "lag": { "fixed_ms": 50 }, "mapping_lag": { "fixed_ms": 0 }, "tag_lag": { "fixed_ms": 1500 } } });
    let (driver, id) = Driver::with_volume_in(1, lagging).await;
    let taken = driver.snapshot("s", &id).await.unwrap().snapshot_id;
    let successor = waiting_process(&driver, 4).await;
    assert_eq!(successor.snapshot("s", &id).await.unwrap().snapshot_id, taken);
    assert_eq!(driver.live("snapshots"), 1);
    assert_eq!(driver.world.calls("CreateSnapshot"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_snapshot_is_reported_until_deleted() {
    let (driver, id) = Driver::with_volume(1).await;
    driver.world.fault_once("CreateSnapshot", &json!({ "kind": "fail_snapshot", "after_ms": 0 }));
    let first = driver.snapshot("s", &id).await.unwrap().snapshot_id;
    let failed = loop {
        match driver.snapshot("s", &id).await {
            Ok(pending) => assert!(!pending.ready_to_use),
            Err(failed) => break failed,
        }
    };
    assert_status(&failed, Code::Internal, &[&first, "delete it"]);
    assert_eq!(driver.world.calls("CreateSnapshot"), 1);
    let request = csi::GetSnapshotRequest { snapshot_id: first.clone(), ..Default::default() };
    assert_eq!(driver.call(request).await.unwrap_err().code(), Code::Internal);
    driver.delete_snapshot(&first).await.unwrap();
    let second = driver.snapshot("s", &id).await.unwrap().snapshot_id;
    assert_ne!(first, second);
}

/// The sidecars decide by these codes whether to retry. A delete of a missing snapshot succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ec2_snapshot_errors_map_to_csi_codes() {
    let (driver, id) = Driver::with_volume(1).await;
    for (code, status, want) in [
        ("SnapshotLimitExceeded", 400, Code::ResourceExhausted),
        ("PendingSnapshotLimitExceeded", 400, Code::ResourceExhausted),
        ("ConcurrentSnapshotLimitExceeded", 400, Code::ResourceExhausted),
        ("IncorrectState", 400, Code::Aborted),
        ("InvalidVolume.NotFound", 400, Code::NotFound),
        ("NeverHeardOf", 400, Code::Internal),
    ] {
        driver.world.clear_faults();
        driver.world.refuse("CreateSnapshot", code, status);
        let refused = driver.snapshot("s", &id).await.unwrap_err();
        let word = if want == Code::NotFound { "" } else { "CreateSnapshot" };
        assert_status(&refused, want, &[word]);
    }
    driver.world.clear_faults();
    assert_eq!(driver.live("snapshots"), 0);
    let snapshot = driver.snapshot("s", &id).await.unwrap().snapshot_id;
    for (code, want) in [
        ("InvalidSnapshot.InUse", Err(Code::FailedPrecondition)),
        ("SnapshotLocked", Err(Code::FailedPrecondition)),
        ("UnauthorizedOperation", Err(Code::PermissionDenied)),
        ("InvalidSnapshot.NotFound", Ok(())),
    ] {
        driver.world.clear_faults();
        driver.world.refuse("DeleteSnapshot", code, 400);
        let deleted = driver.delete_snapshot(&snapshot).await;
        assert_eq!(deleted.map_err(|status| status.code()), want, "{code}");
    }
    driver.world.clear_faults();
    for gone in [snapshot.as_str(), "snap-0fffffffffffffff1", "nonsense"] {
        driver.delete_snapshot(gone).await.unwrap();
    }
    assert_eq!(driver.live("snapshots"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_tags_and_outpost_match_class() {
    let (driver, id) = Driver::with_volume(1).await;
    const OUTPOST: &str = "arn:aws:outposts:us-east-1:111122223333:outpost/op-0aaaaaaaaaaaaaaa1";
    let class = [
        ("outpostArn", OUTPOST),
        ("tagSpecification_1", "of={{ .VolumeSnapshotName }}"),
        ("csi.storage.k8s.io/volumesnapshot/name", "nightly"),
        ("lockMode", "governance"),
        ("lockDuration", "1"),
    ];
    let made = driver.snapshot_of_class("s", &id, &class).await.unwrap();
    assert_eq!(made.size_bytes, 1 << 30);
    assert!(made.creation_time.is_some());
    let found = driver.world.ec2.snapshots_by_name(&Call::default(), "s").await.unwrap();
    let found = found.first().unwrap();
    assert_eq!(found.outpost_arn.as_deref(), Some(OUTPOST));
    for (key, value) in [
        ("CSIVolumeSnapshotName", "s"),
        ("Name", "test-dynamic-s"),
        ("ebs.csi.aws.com/cluster", "true"),
        ("ebs.csi.aws.com/cluster-name", "test"),
        ("ebs.csi.aws.com/lock", "governance days=1"),
        ("kubernetes.io/cluster/test", "owned"),
        ("of", "nightly"),
    ] {
        assert_eq!(found.tags.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(found.tags.len(), 7);
    let fast = [class[0], ("fastSnapshotRestoreAvailabilityZones", "us-east-1a")];
    assert_refused(driver.snapshot_of_class("t", &id, &fast).await, Code::InvalidArgument, &[]);
    let local = driver.snapshot("t", "local-ebs://dev/xvdb").await;
    assert_eq!(local.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_snapshots_pages_return_each_snapshot_once() {
    let (driver, a) = Driver::with_volume(1).await;
    let b = driver.created("pvc-2", 1).await;
    let mut all = BTreeSet::new();
    for n in 0..13 {
        let of = if n % 4 == 0 { &b } else { &a };
        all.insert(driver.snapshot(&format!("s-{n}"), of).await.unwrap().snapshot_id);
    }
    let replica = driver.another().await;
    for max_entries in [0, 1, 2, 5, 7, 100] {
        let mut seen = Vec::new();
        let mut starting_token = String::new();
        // The pages alternate between the two replicas, which do not know each other's tokens.
        let mut from = [&driver, &replica].into_iter().cycle();
        loop {
            let request =
                csi::ListSnapshotsRequest { max_entries, starting_token, ..Default::default() };
            let page = from.next().unwrap().call(request).await.unwrap();
            assert!(max_entries == 0 || page.entries.len() <= max_entries as usize);
            seen.extend(page.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id));
            starting_token = page.next_token;
            if starting_token.is_empty() {
                break;
            }
        }
        assert_eq!(seen.len(), all.len(), "pages of {max_entries}");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), all, "pages of {max_entries}");
    }
    let all_entries = csi::ListSnapshotsRequest::default;
    let request = csi::ListSnapshotsRequest { source_volume_id: b, ..all_entries() };
    assert_eq!(driver.call(request).await.unwrap().entries.len(), 4);
    let one = all.first().unwrap().clone();
    for (id, entries) in [(one.as_str(), 1), ("nonsense", 0), ("snap-0fffffffffffffff1", 0)] {
        let request = csi::ListSnapshotsRequest { snapshot_id: id.to_owned(), ..all_entries() };
        assert_eq!(driver.call(request).await.unwrap().entries.len(), entries, "{id}");
    }
    let starting_token = "not a token".to_owned();
    let request = csi::ListSnapshotsRequest { starting_token, ..all_entries() };
    let bad = driver.call(request).await.unwrap_err();
    let words = ["starting_token \"not a token\"", "list again from the beginning"];
    assert_status(&bad, Code::Aborted, &words);
    let request = csi::GetSnapshotRequest { snapshot_id: one.clone(), ..Default::default() };
    let got = driver.call(request).await.unwrap();
    assert_eq!(got.snapshot.unwrap().snapshot_id, one);
}
