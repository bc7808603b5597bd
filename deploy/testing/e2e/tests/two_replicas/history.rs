//! Histories: workloads whose calls depend on a seed, while a test disturbs the driver and EC2.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebs_csi_e2e::Fixture;
use ebs_csi_sandbox::{Co, CoError, Simulator, WorldOptions};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::Disturbances;
use crate::workload::{Kept, run_workload};

/// The requests whose replies are withheld before a kill.
const CHANGES: [&str; 7] = [
    "CreateVolume",
    "CreateVolume",
    "AttachVolume",
    "DetachVolume",
    "ModifyVolume",
    "CreateSnapshot",
    "DeleteVolume",
];
/// The longest wait for such a request.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Changes the options of a world to those of histories: no disks, one zone, and volumes that can
/// be modified often.
pub(crate) fn without_disks(options: &mut WorldOptions) {
    options.devices = "none".to_owned();
    options.one_zone = true;
    options.scenario = "profile = \"fast\"\n[quotas]\nmodifications_per_day = 100\n".to_owned();
}

/// Runs four workloads, each of which calls one of `callers`, and sets `over` when all have ended.
pub(crate) async fn run_workloads(
    simulator: &Simulator,
    callers: &[Co],
    nodes: &[String],
    seed: u64,
    over: &Cell<bool>,
) -> Result<Kept, CoError> {
    let workload = async |n: usize| {
        let random = Rng::with_seed(seed * 1_000 + n as u64);
        let co = callers[n % callers.len()].clone();
        run_workload(co, simulator, nodes, &format!("pvc-{n}"), random).await
    };
    let all = tokio::join!(workload(0), workload(1), workload(2), workload(3));
    over.set(true);
    <[_; 4]>::from(all).into_iter().try_fold(Kept::default(), |kept, more| Ok(kept.merge(more?)))
}

/// Compares what EC2 holds with what the workloads kept, removes it, and ends the world.
pub(crate) async fn finish(
    fixture: Fixture,
    kept: Result<Kept, CoError>,
    co: &Co,
) -> Result<(), String> {
    let kept = kept.map_err(|error| format!("{error}\n{}", fixture.logs()))?;
    let found = Kept::found(&fixture.world.simulator).await;
    if found != kept {
        let logs = fixture.logs();
        return Err(format!("the callers know {kept:#?}\nEC2 holds {found:#?}\n{logs}"));
    }
    kept.clear(co).await.map_err(|error| format!("clearing up: {error}"))?;
    fixture.finish().await;
    Ok(())
}

/// Lets EC2 withhold the reply to one of the [`CHANGES`], and waits until a controller waits for
/// the reply. Returns whether one does.
pub(crate) async fn withhold_reply(
    simulator: &Simulator,
    random: &mut Rng,
    over: &Cell<bool>,
) -> bool {
    let id = format!("held-{}", random.u64(..));
    let action = random.choice(CHANGES).expect("an action");
    let mark = simulator.last().await.expect("the simulator answers");
    let fault = json!({"kind": "lose_reply", "how": "hang", "effect": true, "hold_ms": 120_000});
    let rule = json!({"id": id, "match": {"action": action}, "count": 1, "fault": fault});
    simulator.fault(rule).await.expect("the simulator takes it");
    let is_withheld =
        |record: &Value| record["faults"].as_array().is_some_and(|all| all.contains(&json!(id)));
    let until = Instant::now() + REQUEST_TIMEOUT;
    let mut is_held = false;
    while !is_held && !over.get() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let sent = simulator.mutations(mark).await.expect("the simulator answers");
        is_held = sent.iter().any(is_withheld);
    }
    // The fault may have been applied or not; in both cases it is no longer needed.
    let _ = simulator.delete(&format!("/v1/faults/{id}")).await;
    is_held
}

/// Returns the seeds in `HISTORY_SEEDS` (`7`, `1-200`), or the first `many` seeds without that
/// variable.
fn chosen(many: u64) -> RangeInclusive<u64> {
    let Ok(given) = std::env::var("HISTORY_SEEDS") else { return 1..=many };
    let (from, to) = given.split_once('-').unwrap_or((&given, &given));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) => from..=to,
        _ => panic!("HISTORY_SEEDS={given:?} is neither a seed nor a range as 1-20"),
    }
}

/// Runs the history of each seed, four at a time, since they mostly wait. Prints the sum of their
/// disturbances, and panics when one failed. A history that returns `None` cannot run here; it ends
/// its thread.
pub(crate) fn run_seeds(
    many: u64,
    history: impl AsyncFn(u64) -> Option<Result<Disturbances, String>> + Sync,
) {
    let seeds = chosen(many);
    let next = AtomicU64::new(*seeds.start());
    let (failed, sum) = (Mutex::new(Vec::new()), Mutex::new(Disturbances::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    match runtime.block_on(history(seed)) {
                        None => return,
                        Some(Ok(one)) => {
                            println!("seed {seed}: {one:?}");
                            let mut sum = sum.lock().unwrap();
                            for (what, often) in one {
                                *sum.entry(what).or_default() += often;
                            }
                        }
                        Some(Err(wrong)) => {
                            println!("seed {seed}: {wrong}");
                            failed.lock().unwrap().push(seed);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "seeds {failed:?}: HISTORY_SEEDS=N runs one of them alone");
    println!("{:?}", sum.into_inner().unwrap());
}
