//! Many volumes at once in an EC2 that fails at random: whatever happens, nothing is left over and nothing is doubled.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::csi;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::driver::{Driver, NODE_1, NODE_2, from_snapshot, volume};

/// As a sidecar does: again and again, until it is done. An answer that is wrong ends the test.
async fn insist<T, F>(what: &str, mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, Status>>,
{
    let mut last = None;
    for attempt in 0..100u64 {
        match call().await {
            Ok(value) => return value,
            Err(status) => {
                let passing = matches!(
                    status.code(),
                    Code::Aborted
                        | Code::Unavailable
                        | Code::DeadlineExceeded
                        | Code::ResourceExhausted
                        | Code::Internal
                );
                assert!(passing, "{what}: {status}");
                last = Some(status);
            }
        }
        tokio::time::sleep(Duration::from_millis(20 * attempt.min(20))).await;
    }
    panic!("{what} never succeeds: {last:?}");
}

async fn live(driver: Arc<Driver>, n: usize) {
    let (name, size) = (format!("pvc-{n}"), 1 + n as i64 % 3);
    let (first, second) = if n % 2 == 0 {
        (NODE_1, NODE_2)
    } else {
        (NODE_2, NODE_1)
    };
    let made = insist(&format!("create {name}"), || {
        driver.create(volume(&name, size))
    })
    .await;
    let id = made.volume_id.as_str();
    insist(&format!("publish {id}"), || driver.publish(id, first)).await;
    insist(&format!("unpublish {id}"), || driver.unpublish(id, first)).await;
    let context: HashMap<_, _> = insist(&format!("publish {id} again"), || {
        driver.publish(id, second)
    })
    .await;
    assert!(context["devicePath"].starts_with("/dev/"), "{context:?}");
    let grown = insist(&format!("expand {id}"), || driver.expand(id, size + 1)).await;
    assert_eq!(grown.capacity_bytes, (size + 1) << 30);
    let again = insist(&format!("create {name} again"), || {
        driver.create(volume(&name, size))
    })
    .await;
    assert_eq!(again.volume_id, id, "a name belongs to one volume");
    let snap = format!("snap-{n}");
    let snapshot = insist(&format!("snapshot {id}"), || driver.snapshot(&snap, id)).await;
    insist(&format!("restore {id}"), || async {
        let snapshot = driver.snapshot(&snap, id).await?;
        match snapshot.ready_to_use {
            true => Ok(()),
            false => Err(Status::unavailable("not ready")),
        }
    })
    .await;
    let restore = || csi::CreateVolumeRequest {
        volume_content_source: Some(from_snapshot(&snapshot.snapshot_id)),
        ..volume(&format!("restored-{n}"), size + 1)
    };
    let restored = insist(&format!("restore {id}"), || driver.create(restore())).await;
    insist(&format!("unpublish {id}"), || driver.unpublish(id, second)).await;
    for gone in [id, &restored.volume_id] {
        insist(&format!("delete {gone}"), || driver.delete(gone)).await;
    }
    insist(&format!("delete {}", snapshot.snapshot_id), || {
        driver.delete_snapshot(&snapshot.snapshot_id)
    })
    .await;
}

fn faults() -> Vec<Value> {
    let changes = [
        "CreateVolume",
        "DeleteVolume",
        "AttachVolume",
        "DetachVolume",
        "ModifyVolume",
        "CreateSnapshot",
        "DeleteSnapshot",
    ];
    let kinds = [
        json!({ "kind": "lose_reply", "how": "close", "effect": true }),
        json!({ "kind": "lose_reply", "how": "reset", "effect": false }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "effect": true }),
        json!({ "kind": "error", "code": "Unavailable", "status": 503, "body": "html" }),
        json!({ "kind": "garble", "how": "unparsable", "effect": true }),
        json!({ "kind": "garble", "how": "cut", "effect": true }),
        json!({ "kind": "throttle" }),
    ];
    let mut rules = Vec::new();
    for action in changes {
        for kind in &kinds {
            rules.push(json!({ "match": { "action": action }, "probability": 0.05, "fault": kind.clone() }));
        }
    }
    for kind in &kinds {
        rules.push(json!({ "match": { "action": "Describe*" }, "probability": 0.03, "fault": kind.clone() }));
    }
    rules
}

/// `HISTORY_SEEDS=10-30` looks further than every run does.
fn seeds() -> std::ops::RangeInclusive<u64> {
    std::env::var("HISTORY_SEEDS")
        .ok()
        .and_then(|range| {
            let (from, to) = range.split_once('-')?;
            Some(from.parse().ok()?..=to.parse().ok()?)
        })
        .unwrap_or(1..=2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_live_through_random_faults_without_leaks_and_doubles() {
    for seed in seeds() {
        let driver = Arc::new(Driver::in_world(json!({ "profile": "fast", "seed": seed })).await);
        for rule in faults() {
            driver.world.fault(rule);
        }
        let lives: Vec<_> = (0..6)
            .map(|n| tokio::spawn(live(Arc::clone(&driver), n)))
            .collect();
        for life in lives {
            life.await.unwrap();
        }
        let rules = driver.world.command(|control| control.get("/v1/faults"));
        let hits = |rule: &Value| rule["hits"].as_u64().unwrap_or(0);
        let hit: u64 = rules.as_array().unwrap().iter().map(hits).sum();
        assert!(hit > 20, "seed {seed}: only {hit} faults");
        driver.world.no_faults();
        let report = driver
            .world
            .command(|control| control.get("/v1/invariants"));
        assert_eq!(
            report["live"],
            json!({ "volumes": 0, "snapshots": 0, "attachments": 0 }),
            "seed {seed}: {report}"
        );
        assert_eq!(report["ok"], json!(true), "seed {seed}: {report}");
        assert_eq!(driver.controller.operations(), 0, "seed {seed}");
    }
}
