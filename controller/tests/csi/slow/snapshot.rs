//! Snapshots while lookups by tag lag, and a class's date that has passed.

use std::time::Duration;

use ebs_csi_controller::csi::service::Controller;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_server::Controller as Service;
use serde_json::json;
use tonic::{Code, Request, Status};

use super::Slow;
use crate::driver::{self, assert_status};

/// Returns a world in which EC2 behaves like the real service: lookups by tag lag, and EC2 accepts
/// one snapshot of a volume in 15 s.
async fn lagging() -> (Slow, String) {
    let slow = Slow::new(json!({
        "quotas": { "snapshot_interval_ms": 15_000 },
        "consistency": { "replicas": 1, "lag": { "fixed_ms": 0 }, "tag_lag": { "fixed_ms": 9_000 } },
    }))
    .await;
    let volume = slow.create("pvc-1").await.unwrap();
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

/// EC2 refuses the duplicate while the name lookup lags; the standby then finds the snapshot.
#[tokio::test(start_paused = true)]
async fn standby_takeover_makes_no_second_snapshot() {
    let (slow, volume) = lagging().await;
    let standby = slow.another(2).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let taken = snapshot(&slow.controller, &volume).await.unwrap();
    // The standby's lookup by name does not show the snapshot yet; EC2 refuses a second one.
    let refused = snapshot(&standby, &volume).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
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

/// A snapshot taken before the date is returned again. A new one is InvalidArgument and is not
/// taken.
#[tokio::test(start_paused = true)]
async fn expired_lock_date_blocks_only_new_snapshots() {
    let slow = Slow::new(json!({})).await;
    let volume = slow.create("pvc-1").await.unwrap();
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
