//! One snapshot for each name, and listings that end.

use std::collections::BTreeSet;

use ebs_csi_proto::csi;
use serde_json::json;
use tonic::{Code, Status};

use crate::driver::{Driver, map, volume, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_make_one_snapshot() {
    for fault in [
        json!({ "kind": "lose_reply", "how": "close", "effect": true }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "effect": true }),
        json!({ "kind": "garble", "how": "unparsable", "effect": true }),
    ] {
        let driver = Driver::new().await;
        let id = driver.create(volume("pvc-1", 1)).await.unwrap().volume_id;
        driver.world.fault(
            json!({ "match": { "action": "CreateSnapshot" }, "count": 1, "fault": fault.clone() }),
        );
        let taken = driver.snapshot("s", &id).await.unwrap();
        assert_eq!(
            driver.snapshot("s", &id).await.unwrap().snapshot_id,
            taken.snapshot_id,
            "{fault}"
        );
        assert_eq!(
            (
                driver.live("snapshots"),
                driver.world.calls("CreateSnapshot")
            ),
            (1, 1),
            "{fault}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_belongs_to_one_volume() {
    let driver = Driver::new().await;
    let a = driver.create(volume("pvc-1", 1)).await.unwrap().volume_id;
    let b = driver.create(volume("pvc-2", 1)).await.unwrap().volume_id;
    driver.snapshot("s", &a).await.unwrap();
    let taken = driver.snapshot("s", &b).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists, "{taken}");
    assert_eq!(driver.live("snapshots"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_without_its_lock_does_not_stay() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 1)).await.unwrap().volume_id;
    let locked = csi::CreateSnapshotRequest {
        name: "s".to_owned(),
        source_volume_id: id.clone(),
        parameters: map(&[("lockMode", "governance"), ("lockDuration", "1")]),
        ..Default::default()
    };
    driver.world.fault(json!({ "match": { "action": "LockSnapshot" }, "fault": { "kind": "error", "code": "UnauthorizedOperation", "status": 403 } }));
    let refused = driver
        .client
        .clone()
        .create_snapshot(within(locked, 30))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert_eq!(driver.live("snapshots"), 0);
    let nowhere = csi::CreateSnapshotRequest {
        name: "s".to_owned(),
        source_volume_id: id,
        parameters: map(&[("fastSnapshotRestoreAvailabilityZones", "mars-1a")]),
        ..Default::default()
    };
    let refused = driver
        .client
        .clone()
        .create_snapshot(within(nowhere, 30))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert_eq!(driver.live("snapshots"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_any_size_give_every_snapshot_once() {
    let driver = Driver::new().await;
    let a = driver.create(volume("pvc-1", 1)).await.unwrap().volume_id;
    let b = driver.create(volume("pvc-2", 1)).await.unwrap().volume_id;
    let mut all = BTreeSet::new();
    for n in 0..13 {
        let of = if n % 4 == 0 { &b } else { &a };
        all.insert(
            driver
                .snapshot(&format!("s-{n}"), of)
                .await
                .unwrap()
                .snapshot_id,
        );
    }
    let replica = driver.another().await;
    let list_from = async |from: &Driver,
                           request: csi::ListSnapshotsRequest|
           -> Result<csi::ListSnapshotsResponse, Status> {
        Ok(from
            .client
            .clone()
            .list_snapshots(within(request, 10))
            .await?
            .into_inner())
    };
    let list = async |request| list_from(&driver, request).await;
    for max_entries in [0, 1, 2, 5, 7, 100] {
        let mut seen = Vec::new();
        let mut starting_token = String::new();
        // Another process, which has never heard of the token, goes on with it.
        let mut from = [&driver, &replica].into_iter().cycle();
        loop {
            let request = csi::ListSnapshotsRequest {
                max_entries,
                starting_token,
                ..Default::default()
            };
            let page = list_from(from.next().unwrap(), request).await.unwrap();
            assert!(max_entries == 0 || page.entries.len() <= max_entries as usize);
            seen.extend(
                page.entries
                    .into_iter()
                    .map(|entry| entry.snapshot.unwrap().snapshot_id),
            );
            starting_token = page.next_token;
            if starting_token.is_empty() {
                break;
            }
        }
        assert_eq!(seen.len(), all.len(), "pages of {max_entries}");
        assert_eq!(
            seen.into_iter().collect::<BTreeSet<_>>(),
            all,
            "pages of {max_entries}"
        );
    }
    let of_b = list(csi::ListSnapshotsRequest {
        source_volume_id: b.clone(),
        ..Default::default()
    })
    .await
    .unwrap();
    assert_eq!(of_b.entries.len(), 4);
    let one = all.first().unwrap().clone();
    let by_id = list(csi::ListSnapshotsRequest {
        snapshot_id: one.clone(),
        ..Default::default()
    })
    .await
    .unwrap();
    assert_eq!(by_id.entries.len(), 1);
    for nothing in ["nonsense", "snap-0fffffffffffffff1"] {
        let none = list(csi::ListSnapshotsRequest {
            snapshot_id: nothing.to_owned(),
            ..Default::default()
        })
        .await
        .unwrap();
        assert!(none.entries.is_empty());
    }
    let bad = list(csi::ListSnapshotsRequest {
        starting_token: "not a token".to_owned(),
        ..Default::default()
    })
    .await;
    let bad = bad.unwrap_err();
    assert_eq!(bad.code(), Code::Aborted);
    assert!(
        bad.message().contains("starting_token \"not a token\"")
            && bad.message().contains("list again from the beginning"),
        "{bad}"
    );
    let got = driver
        .client
        .clone()
        .get_snapshot(within(
            csi::GetSnapshotRequest {
                snapshot_id: one.clone(),
                ..Default::default()
            },
            10,
        ))
        .await
        .unwrap();
    assert_eq!(got.into_inner().snapshot.unwrap().snapshot_id, one);
}
