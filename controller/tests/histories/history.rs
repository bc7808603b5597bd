//! One history: a world, workloads, faults, and the final state.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::fault_plan::{FaultPlan, scenario};
use super::known_bug::KnownBug;
use super::orchestrator::{self, Leaders, SIDECARS};
use super::replica::{Replica, ReplicaParts};
use super::seeded_random::SeededRandom;
use super::workload;
use crate::world::in_process::{InProcess, block_on};

/// Some histories terminate the third.
pub(crate) const NODES: [&str; 3] =
    ["i-0aaaaaaaaaaaaaaa1", "i-0aaaaaaaaaaaaaaa2", "i-0aaaaaaaaaaaaaaa3"];

/// What the callers know of, as pairs of name and id, or of volume and node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) volumes: Vec<(String, String)>,
    pub(crate) snapshots: Vec<(String, String)>,
    pub(crate) attachments: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) ec2: InProcess,
    pub(crate) faults: Arc<FaultPlan>,
    pub(crate) replicas: [Arc<Replica>; 2],
    pub(crate) leaders: Leaders,
    /// The short deadline that every call has in some histories.
    pub(crate) short_timeout: Option<Duration>,
    pub(crate) began: Instant,
    known: Mutex<Known>,
    violations: Mutex<Vec<String>>,
}

impl World {
    pub(crate) fn record_violation(&self, what: String) {
        self.ec2.note(format!("WRONG: {what}"));
        self.violations.lock().unwrap().push(what);
    }

    pub(crate) fn known(&self) -> Known {
        self.known.lock().unwrap().clone()
    }

    fn learn(&self, learn: impl FnOnce(&mut Known)) {
        learn(&mut self.known.lock().unwrap());
    }

    pub(crate) fn add_known_volume(&self, name: &str, id: &str) {
        self.learn(|known| known.volumes.push((name.to_owned(), id.to_owned())));
    }

    pub(crate) fn remove_known_volume(&self, id: &str) {
        self.learn(|known| known.volumes.retain(|(_, of)| of != id));
    }

    pub(crate) fn add_known_snapshot(&self, name: &str, id: &str) {
        self.remove_known_snapshot(id);
        self.learn(|known| known.snapshots.push((name.to_owned(), id.to_owned())));
    }

    pub(crate) fn remove_known_snapshot(&self, id: &str) {
        self.learn(|known| known.snapshots.retain(|(_, of)| of != id));
    }

    pub(crate) fn add_known_attachment(&self, volume: &str, node: &str) {
        self.learn(|known| known.attachments.push((volume.to_owned(), node.to_owned())));
    }
}

#[derive(Debug)]
pub(crate) struct Outcome {
    /// All requests and events, with the time in milliseconds.
    pub(crate) log_lines: Vec<String>,
    pub(crate) violations: Vec<String>,
}

pub(crate) fn run(seed: u64, bug: Option<KnownBug>) -> Outcome {
    block_on(run_history(seed, bug))
}

async fn run_history(seed: u64, bug: Option<KnownBug>) -> Outcome {
    let ec2 = InProcess::new(scenario(seed));
    let faults = FaultPlan::of(seed);
    let random = SeededRandom::of(seed, "world");
    let parts = ReplicaParts { ec2: ec2.clone(), faults: Arc::clone(&faults), bug };
    let world = Arc::new(World {
        ec2: ec2.clone(),
        faults: Arc::clone(&faults),
        replicas: [
            Replica::start(parts.clone(), seed, 0).await,
            Replica::start(parts, seed, 1).await,
        ],
        leaders: Leaders::of(seed),
        short_timeout: random.chance(0.2).then(|| random.millis(3_000, 15_000)),
        began: Instant::now(),
        known: Mutex::default(),
        violations: Mutex::default(),
    });
    for sidecar in SIDECARS {
        tokio::spawn(orchestrator::move_leadership(Arc::clone(&world), sidecar, seed));
    }
    for replica in &world.replicas {
        tokio::spawn(Arc::clone(replica).keep_running());
        if faults.skew {
            tokio::spawn(Arc::clone(replica).disturb_clock());
        }
    }
    let plan = || Arc::clone(&faults);
    if faults.storms {
        tokio::spawn(plan().storms(ec2.clone(), seed));
    }
    if faults.credentials {
        tokio::spawn(plan().credentials(ec2.clone(), seed));
    }
    if faults.outages {
        tokio::spawn(plan().outages(ec2.clone(), seed));
    }
    if faults.gaps {
        tokio::spawn(plan().gaps(ec2.clone(), seed));
    }
    tokio::spawn(plan().end_faults(ec2.clone()));
    let workloads = 3 + random.below(4);
    let workloads: Vec<_> =
        (0..workloads).map(|n| tokio::spawn(workload::run(Arc::clone(&world), seed, n))).collect();
    let groups = random.below(3);
    let groups = (0..groups)
        .map(|n| tokio::spawn(workload::group::run(Arc::clone(&world), seed, n)))
        .collect::<Vec<_>>();
    for (n, workload) in workloads.into_iter().chain(groups).enumerate() {
        if let Err(why) = workload.await {
            world.record_violation(format!("workload {n}: {why}"));
        }
    }
    wait_for_rest_and_check(&world).await;
    let log_lines = ec2.log_lines();
    let violations = world.violations.lock().unwrap().clone();
    Outcome { log_lines, violations }
}

/// Waits until operations without callers have ended too, and checks the final state.
async fn wait_for_rest_and_check(world: &World) {
    tokio::time::sleep(Duration::from_secs(900)).await;
    for (n, replica) in world.replicas.iter().enumerate() {
        match replica.process().map(|process| process.controller.operations()) {
            Some(0) => {}
            left => {
                world.record_violation(format!("at rest: replica {n} has operations: {left:?}"))
            }
        }
    }
    world.check_final_state();
    let report = world.ec2.report();
    for violation in report["violations"].as_array().into_iter().flatten() {
        world.record_violation(violation.to_string());
    }
}
