//! The faults of a history, decided by its seed: each history has some of them, and all faults end,
//! so that the history can come to rest.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebs_csi_controller::safe_detach::Mode as SafeDetach;
use ec2_sim::ZoneState::{Available, Unavailable};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::history::NODES;
use super::seeded_random::SeededRandom;
use crate::world::in_process::InProcess;

/// The time after which no fault happens any more.
pub(crate) const CALM_AFTER: Duration = Duration::from_secs(240);

const CHANGES: [&str; 9] = [
    "CreateVolume",
    "CopyVolumes",
    "DeleteVolume",
    "AttachVolume",
    "DetachVolume",
    "ModifyVolume",
    "DeleteSnapshot",
    "CreateSnapshot",
    "CreateSnapshots",
];
/// The ages of the state that late reads show. With a greater age, a lookup by tag can hide a new
/// snapshot from a replica that knows nothing yet, which the replica cannot tell from a snapshot
/// that was never taken. So a replica takes longer than this to restart.
const LATE_READS_MS: [u64; 3] = [150, 400, 1_000];
const BUSY_ACTIONS: [&str; 5] =
    ["CreateVolume", "AttachVolume", "DescribeVolumes", "CreateSnapshot", "ModifyVolume"];
/// The actions for which EC2 refuses the credentials.
const REFUSED_ACTIONS: [&str; 6] =
    ["*", "*", "Describe*", "CreateVolume", "DetachVolume", "CreateSnapshot"];

/// The faults that are not EC2's own.
#[derive(Debug)]
pub(crate) struct FaultPlan {
    /// Whether reads show a slightly older state now and then.
    pub(crate) late_reads: bool,
    /// The probability that a change kills the replica that sends it, before the request leaves or
    /// after it has taken effect.
    pub(crate) crash: f64,
    /// Whether sidecars lose their leadership now and then.
    pub(crate) handovers: bool,
    /// Whether the replicas' clocks are wrong now and then.
    pub(crate) skew: bool,
    pub(crate) credentials: bool,
    /// Whether other clients now and then use up the account's request rates.
    pub(crate) storms: bool,
    /// Whether people act on the same volumes.
    pub(crate) foreign: bool,
    pub(crate) small_quotas: bool,
    pub(crate) outages: bool,
    /// Whether reads hide an existing resource, for up to a minute.
    pub(crate) gaps: bool,
    pub(crate) reconfigured: bool,
    pub(crate) safe_detach: SafeDetach,
    calm: AtomicBool,
}

impl FaultPlan {
    pub(crate) fn of(seed: u64) -> Arc<Self> {
        let random = SeededRandom::of(seed, "weather");
        let limits = SeededRandom::of(seed, "limits");
        Arc::new(Self {
            late_reads: random.chance(0.6),
            crash: if random.chance(0.6) { 0.08 } else { 0.0 },
            handovers: random.chance(0.5),
            skew: random.chance(0.25),
            credentials: random.chance(0.3),
            storms: random.chance(0.3),
            foreign: random.chance(0.5),
            small_quotas: limits.chance(0.25),
            outages: limits.chance(0.2),
            gaps: SeededRandom::of(seed, "gaps in reads").chance(0.5),
            reconfigured: random.chance(0.5),
            safe_detach: *random.pick(&[SafeDetach::Off, SafeDetach::Ec2Only]),
            calm: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(crate) async fn end_faults(self: Arc<Self>, ec2: InProcess) {
        tokio::time::sleep(CALM_AFTER).await;
        self.calm.store(true, Ordering::Relaxed);
        ec2.note("calm".to_owned());
        ec2.act(|sim, _| {
            sim.faults.clear();
            sim.limits.foreign.clear();
            sim.change_quotas(unlimited_quotas()).expect("limits");
        });
    }

    pub(crate) async fn outages(self: Arc<Self>, ec2: InProcess, seed: u64) {
        let random = SeededRandom::of(seed, "outages");
        while !self.is_calm() {
            tokio::time::sleep(random.millis(5_000, 90_000)).await;
            for (state, min, max) in [(Unavailable, 1_000, 20_000), (Available, 0, 1)] {
                ec2.note(format!("the zone is {state:?}"));
                ec2.act(|sim, _| sim.set_zone_state(ZONE, state));
                tokio::time::sleep(random.millis(min, max)).await;
            }
        }
    }

    pub(crate) async fn gaps(self: Arc<Self>, ec2: InProcess, seed: u64) {
        let random = SeededRandom::of(seed, "gaps");
        let mut hidden_until: HashMap<String, Instant> = HashMap::new();
        while !self.is_calm() {
            tokio::time::sleep(random.millis(200, 15_000)).await;
            let ids: Vec<String> = ec2.act(|sim, _| {
                let realm = &sim.realm();
                let volumes = realm.volumes().values().filter(|v| !v.root).map(|v| &v.id);
                let others = realm.instances().keys().chain(realm.snapshots().keys());
                volumes.chain(others).cloned().collect()
            });
            if ids.is_empty() {
                continue;
            }
            let id = random.pick(&ids);
            // A process does not know what another process was told, EC2 has no token for
            // snapshots, and EC2 may check quotas before the token of a volume. A gap could
            // therefore duplicate a snapshot, or hide a volume behind a quota
            // (`deploy/docs/limitations.md`).
            let has_no_proof =
                id.starts_with("snap-") || id.starts_with("vol-") && self.small_quotas;
            if has_no_proof && (self.handovers || self.crash > 0.0) {
                continue;
            }
            // Gaps of one resource must not follow each other without a pause.
            let now = Instant::now();
            if hidden_until.get(id).is_some_and(|until| now < *until + Duration::from_secs(60)) {
                continue;
            }
            let span = random.below(60_000);
            hidden_until.insert(
                id.clone(),
                now + Duration::from_millis(u64::try_from(span).expect("small")),
            );
            ec2.note(format!("reads do not show {id} for {span} ms"));
            let rule = json!({ "match": { "action": "Describe*" }, "for_ms": span, "fault": { "kind": "unseen", "id": id } });
            ec2.fault(rule);
        }
    }

    pub(crate) async fn storms(self: Arc<Self>, ec2: InProcess, seed: u64) {
        let random = SeededRandom::of(seed, "storms");
        while !self.is_calm() {
            tokio::time::sleep(random.millis(5_000, 60_000)).await;
            let action = *random.pick(&BUSY_ACTIONS);
            ec2.note(format!("a storm of others' {action}"));
            ec2.act(|sim, _| sim.limits.foreign.insert(action.to_owned(), 1000.0));
            tokio::time::sleep(random.millis(2_000, 30_000)).await;
            ec2.act(|sim, _| sim.limits.foreign.remove(action));
        }
    }

    pub(crate) async fn credentials(self: Arc<Self>, ec2: InProcess, seed: u64) {
        let random = SeededRandom::of(seed, "credentials");
        while !self.is_calm() {
            tokio::time::sleep(random.millis(5_000, 90_000)).await;
            let (code, status) = *random.pick(&[
                ("ExpiredToken", 400),
                ("AuthFailure", 401),
                ("UnauthorizedOperation", 403),
            ]);
            let action = *random.pick(&REFUSED_ACTIONS);
            ec2.note(format!("{action} answers {code}"));
            let rule = json!({ "match": { "action": action }, "for_ms": 2_000 + random.below(20_000), "fault": { "kind": "error", "code": code, "status": status } });
            ec2.fault(rule);
        }
    }
}

const ZONE: &str = "us-east-1a";

/// Returns quotas that several volumes reach at once: of a volume, of the account, of the zone.
/// Some are checked before the client token.
fn small_quotas(random: &SeededRandom) -> Value {
    json!({
        "storage_tib": { "gp3": 0.02, "io2": 0.02 },
        "iops": { "io2": 500 },
        "pending_snapshots": 2,
        "concurrent_snapshots": 1,
        "copies": 1,
        "before_token": random.chance(0.5),
        "capacity": [{ "zone": ZONE, "gib": 16 + random.below(8), "status": if random.chance(0.5) { 500 } else { 503 } }],
    })
}

fn unlimited_quotas() -> Value {
    json!({
        "storage_tib": {},
        "iops": {},
        "pending_snapshots": null,
        "concurrent_snapshots": 5,
        "copies": 5,
        "before_token": false,
        "capacity": [],
    })
}

pub(crate) fn scenario(seed: u64) -> Value {
    let random = SeededRandom::of(seed, "scenario");
    let mut scenario = json!({
        "seed": seed,
        "profile": "fast",
        // The spread is that of the real service, at a shorter scale: simulated time costs real
        // time only where the driver polls.
        "latency": {
            "api_read": { "p50_ms": 60, "p99_ms": 330 },
            "api_write": { "p50_ms": 60, "p99_ms": 900 },
            "volume_create": { "p50_ms": 150, "p99_ms": 1_500 },
            "volume_create_from_snapshot": { "p50_ms": 200, "p99_ms": 1_500 },
            "volume_copy": { "p50_ms": 200, "p99_ms": 1_500 },
            "volume_delete": { "p50_ms": 150, "p99_ms": 1_500 },
            "attach": { "p50_ms": 150, "p99_ms": 1_500 },
            "detach": { "p50_ms": 150, "p99_ms": 1_500 },
            "modify": { "p50_ms": 150, "p99_ms": 1_500 },
            "modify_complete": { "fixed_ms": 500 },
            "snapshot": { "p50_ms": 1_000, "p99_ms": 9_000 },
            "initialize_per_gib": { "fixed_ms": 1_000 },
        },
        "quotas": { "modifications_per_day": 100, "snapshot_interval_ms": 15_000 },
        "instances": NODES.map(|id| json!({ "id": id, "type": "m5.large", "zone": ZONE })),
    });
    let mut rules = rules(&random);
    if FaultPlan::of(seed).late_reads {
        rules.extend(LATE_READS_MS.map(|ms| {
            json!({ "match": { "action": "Describe*" }, "probability": 0.1, "fault": { "kind": "stale", "ms": ms } })
        }));
    }
    scenario["faults"] = json!(rules);
    if FaultPlan::of(seed).small_quotas
        && let Value::Object(quotas) = small_quotas(&SeededRandom::of(seed, "narrow"))
    {
        scenario["quotas"].as_object_mut().expect("an object").extend(quotas);
    }
    if SeededRandom::of(seed, "names").chance(0.3) {
        let faults = scenario["faults"].as_array_mut().expect("a list");
        // A device name is taken by something that no call lists, or somebody takes the name first.
        for kind in ["device_taken", "device_raced"] {
            faults.push(json!({ "match": { "action": "AttachVolume" }, "probability": 0.1, "fault": { "kind": kind } }));
        }
    }
    scenario
}

fn rules(random: &SeededRandom) -> Vec<Value> {
    let mut rules = Vec::new();
    let mut rule = |action: &str, probability: f64, fault: Value| {
        rules.push(
            json!({ "match": { "action": action }, "probability": probability, "fault": fault }),
        );
    };
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
    for kind in &kinds {
        if random.chance(0.5) {
            for action in CHANGES {
                rule(action, 0.06, kind.clone());
            }
            rule("Describe*", 0.03, kind.clone());
        }
    }
    if random.chance(0.4) {
        // The request is sent twice within the time that a connection takes to be repeated: EC2
        // sees the second before the first has ended.
        for action in &CHANGES[..7] {
            rule(action, 0.1, json!({ "kind": "duplicate", "after_ms": 5 }));
        }
    }
    if random.chance(0.4) {
        for outcome in ["vanish", "error"] {
            let failure = json!({ "kind": "fail_create", "outcome": outcome, "after_ms": 700 });
            rule("CreateVolume", 0.08, failure.clone());
            rule("CopyVolumes", 0.08, failure);
        }
    }
    if random.chance(0.3) {
        rule("CreateSnapshot", 0.15, json!({ "kind": "fail_snapshot", "after_ms": 700 }));
        rule("CreateSnapshots", 0.15, json!({ "kind": "fail_snapshot", "after_ms": 700 }));
        rule("ModifyVolume", 0.15, json!({ "kind": "fail_modify", "after_ms": 700 }));
    }
    if random.chance(0.3) {
        rule("AttachVolume", 0.08, json!({ "kind": "skew_attach", "ms": 1_500 }));
        let stuck = json!({ "kind": "stuck_detach", "for_ms": 20_000, "busy": true });
        rule("DetachVolume", 0.05, stuck);
        rule("AttachVolume", 0.03, json!({ "kind": "stuck_attach", "for_ms": 120_000 }));
    }
    rules
}
