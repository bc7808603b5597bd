//! Histories of the CSI service under virtual time: two replicas, an EC2 that fails at random, and a caller that insists as sidecars do.
//! A seed decides everything, so that a history that fails is found again by its number: `HISTORY_SEEDS=17-17`.

#[path = "world/in_process.rs"]
mod in_process;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebs_csi_controller::ec2::Random;
use ebs_csi_controller::safe_detach::Mode as SafeDetach;
use ebs_csi_controller::service::{Controller, Settings};
use ebs_csi_controller::tags::TagSettings;
use ebs_csi_proto::csi::controller_server::Controller as Service;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use ebs_csi_proto::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use ebs_csi_proto::csi::volume_content_source::{SnapshotSource, Type as SourceType};
use ebs_csi_proto::{Condition, Failure, csi};
use in_process::InProcess;
use serde_json::{Value, json};
use tonic::{Code, Request, Response, Status};

const NODES: [&str; 2] = ["i-0aaaaaaaaaaaaaaa1", "i-0aaaaaaaaaaaaaaa2"];
const VOLUMES: usize = 8;

/// The callers' side: two replicas, of which each call meets one.
struct Cluster {
    replicas: [Controller; 2],
    random: Random,
    calls: AtomicU64,
}

impl Cluster {
    /// Calls until it succeeds, each time at either replica and with a time limit that may be too short.
    async fn insist<M, T, F>(
        &self,
        what: &str,
        message: M,
        call: impl Fn(Controller, Request<M>) -> F,
    ) -> T
    where
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut last = None;
        for attempt in 0..400u64 {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let replica = usize::from(self.random.fraction() < 0.2);
            let limit = Duration::from_millis(match self.random.fraction() {
                f if f < 0.1 => 300,
                f if f < 0.2 => 3_000,
                _ => 60_000,
            });
            let mut request = Request::new(message.clone());
            request.set_timeout(limit);
            // A transport cuts the call off at its limit, whatever the service does.
            let answer =
                tokio::time::timeout(limit, call(self.replicas[replica].clone(), request)).await;
            let status = match answer {
                Ok(Ok(response)) => return response.into_inner(),
                Ok(Err(status)) => status,
                Err(_) => Failure::new(Condition::DeadlinePassed, "cut off").into(),
            };
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
            tokio::time::sleep(Duration::from_millis((200 << attempt.min(6)).min(10_000))).await;
        }
        panic!("{what} never succeeds: {last:?}");
    }
}

fn volume(name: &str, gib: i64) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::CapacityRange {
            required_bytes: gib << 30,
            limit_bytes: 0,
        }),
        volume_capabilities: vec![mount()],
        accessibility_requirements: Some(csi::TopologyRequirement {
            requisite: vec![csi::Topology {
                segments: HashMap::from([(
                    "topology.kubernetes.io/zone".to_owned(),
                    "us-east-1a".to_owned(),
                )]),
            }],
            preferred: vec![],
        }),
        ..Default::default()
    }
}

fn mount() -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode {
            mode: Mode::SingleNodeWriter as i32,
        }),
    }
}

/// A workload that comes, moves, grows, is backed up and restored, and goes.
async fn live(cluster: Arc<Cluster>, n: usize) {
    let (name, size) = (format!("pvc-{n}"), 1 + n as i64 % 3);
    let create = volume(&name, size);
    let made = cluster
        .insist(&name, create.clone(), |c, r| async move {
            c.create_volume(r).await
        })
        .await;
    let id = made.volume.unwrap().volume_id;
    let publish = |node: &str| csi::ControllerPublishVolumeRequest {
        volume_id: id.clone(),
        node_id: node.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    let unpublish = |node: &str| csi::ControllerUnpublishVolumeRequest {
        volume_id: id.clone(),
        node_id: node.to_owned(),
        ..Default::default()
    };
    for step in 0..3 {
        let node = NODES[(n + step) % 2];
        let context = cluster
            .insist(&format!("publish {id}"), publish(node), |c, r| async move {
                c.controller_publish_volume(r).await
            })
            .await
            .publish_context;
        assert!(context["devicePath"].starts_with("/dev/"), "{context:?}");
        cluster
            .insist(
                &format!("unpublish {id}"),
                unpublish(node),
                |c, r| async move { c.controller_unpublish_volume(r).await },
            )
            .await;
    }
    let expand = csi::ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range: Some(csi::CapacityRange {
            required_bytes: (size + 1) << 30,
            limit_bytes: 0,
        }),
        ..Default::default()
    };
    let grown = cluster
        .insist(&format!("expand {id}"), expand, |c, r| async move {
            c.controller_expand_volume(r).await
        })
        .await;
    assert_eq!(grown.capacity_bytes, (size + 1) << 30);
    let again = cluster
        .insist(
            &name,
            create,
            |c, r| async move { c.create_volume(r).await },
        )
        .await;
    assert_eq!(
        again.volume.unwrap().volume_id,
        id,
        "a name belongs to one volume"
    );
    let take = csi::CreateSnapshotRequest {
        name: format!("snap-{n}"),
        source_volume_id: id.clone(),
        ..Default::default()
    };
    let snapshot = loop {
        let snapshot = cluster
            .insist(&format!("snapshot {id}"), take.clone(), |c, r| async move {
                c.create_snapshot(r).await
            })
            .await
            .snapshot
            .unwrap();
        if snapshot.ready_to_use {
            break snapshot.snapshot_id;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    let restore = csi::CreateVolumeRequest {
        volume_content_source: Some(csi::VolumeContentSource {
            r#type: Some(SourceType::Snapshot(SnapshotSource {
                snapshot_id: snapshot.clone(),
            })),
        }),
        ..volume(&format!("restored-{n}"), size + 1)
    };
    let restored = cluster
        .insist(&format!("restore {n}"), restore, |c, r| async move {
            c.create_volume(r).await
        })
        .await
        .volume
        .unwrap()
        .volume_id;
    for gone in [id, restored] {
        let delete = csi::DeleteVolumeRequest {
            volume_id: gone.clone(),
            ..Default::default()
        };
        cluster
            .insist(&format!("delete {gone}"), delete, |c, r| async move {
                c.delete_volume(r).await
            })
            .await;
    }
    let delete = csi::DeleteSnapshotRequest {
        snapshot_id: snapshot,
        ..Default::default()
    };
    cluster
        .insist(&format!("delete snapshot {n}"), delete, |c, r| async move {
            c.delete_snapshot(r).await
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
        json!({ "kind": "lose_reply", "how": "hang", "effect": true, "hold_ms": 20_000 }),
        json!({ "kind": "lose_reply", "how": "reset", "effect": false }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "effect": true }),
        json!({ "kind": "error", "code": "Unavailable", "status": 503, "body": "html" }),
        json!({ "kind": "garble", "how": "unparsable", "effect": true }),
        json!({ "kind": "garble", "how": "cut", "effect": true }),
        json!({ "kind": "throttle" }),
    ];
    let mut rules = Vec::new();
    for kind in &kinds {
        for action in changes {
            rules.push(json!({ "match": { "action": action }, "probability": 0.04, "fault": kind.clone() }));
        }
        rules.push(json!({ "match": { "action": "Describe*" }, "probability": 0.02, "fault": kind.clone() }));
    }
    rules.push(json!({ "match": { "action": "AttachVolume" }, "probability": 0.05, "fault": { "kind": "stuck_attach", "for_ms": 200_000 } }));
    rules.push(json!({ "match": { "action": "AttachVolume" }, "probability": 0.1, "fault": { "kind": "skew_attach", "ms": 1_500 } }));
    rules.push(json!({ "match": { "action": "DetachVolume" }, "probability": 0.05, "fault": { "kind": "stuck_detach", "for_ms": 60_000, "busy": true } }));
    rules.push(json!({ "match": { "action": "CreateVolume" }, "probability": 0.05, "fault": { "kind": "fail_create", "outcome": "vanish", "after_ms": 700 } }));
    rules.push(json!({ "match": { "action": "CreateVolume" }, "probability": 0.05, "fault": { "kind": "fail_create", "outcome": "error", "after_ms": 700 } }));
    rules
}

/// Runs one history; answers what passed between the drivers and EC2.
fn history(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = InProcess::new(json!({
            "seed": seed,
            "profile": "real",
            "quotas": { "modifications_per_day": 100 },
            "instances": NODES.map(|id| json!({ "id": id, "type": "m5.large", "zone": "us-east-1a" })),
            "faults": faults(),
        }));
        let settings = Settings {
            tags: TagSettings::default(),
            modify_window: Duration::from_secs(2),
            node_local_volumes: true,
            safe_detach: SafeDetach::Off,
            ..Settings::default()
        };
        let replica = async |seed| Controller::new(world.access(seed).await, settings.clone(), Arc::default());
        let cluster = Arc::new(Cluster {
            replicas: [replica(seed).await, replica(seed + 1_000_000).await],
            random: Random::new(seed),
            calls: AtomicU64::new(0),
        });
        let lives: Vec<_> = (0..VOLUMES).map(|n| tokio::spawn(live(Arc::clone(&cluster), n))).collect();
        for life in lives {
            life.await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
        // What nobody waits for any more ends too.
        tokio::time::sleep(Duration::from_secs(900)).await;
        assert_eq!(cluster.replicas.each_ref().map(Controller::operations), [0, 0], "seed {seed}");
        let report = world.report();
        if std::env::var_os("HISTORY_SHOW").is_some() {
            world.passed().iter().for_each(|line| println!("{line}"));
            println!("{:#}", world.state());
        }
        assert_eq!(report["live"], json!({ "volumes": 0, "snapshots": 0, "attachments": 0 }), "seed {seed}: {report}");
        assert_eq!(report["ok"], json!(true), "seed {seed}: {report}");
        world.passed()
    })
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    std::env::var("HISTORY_SEEDS")
        .ok()
        .and_then(|range| {
            let (from, to) = range.split_once('-')?;
            Some(from.parse().ok()?..=to.parse().ok()?)
        })
        .unwrap_or(1..=8)
}

#[test]
fn nothing_is_left_over_and_nothing_is_doubled_whatever_ec2_does() {
    for seed in seeds() {
        let passed = history(seed);
        assert!(passed.len() > 20 * VOLUMES, "seed {seed}");
    }
}

#[test]
fn a_seed_replays_its_history_exactly() {
    let (first, second) = (history(7), history(7));
    for (n, (a, b)) in first.iter().zip(&second).enumerate() {
        assert_eq!(a, b, "request {n}");
    }
    assert_eq!(first.len(), second.len());
}
