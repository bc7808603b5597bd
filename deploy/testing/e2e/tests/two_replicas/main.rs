//! Histories of the real controller: one that is killed with SIGKILL between a request to EC2 and
//! its reply, again and again, and two that serve one cluster at the same time. The sidecars'
//! leadership moves from one to the other in the middle of calls; the controllers get SIGTERM and
//! drain, are killed, and start again; EC2 becomes unreachable for a while and loses replies.
//! Nothing leaks, nothing is duplicated, every answer is true, and a controller that gets SIGTERM
//! ends.
//!
//! `HISTORY_SEEDS=7` runs one history of each test, `HISTORY_SEEDS=1-200` a range. A seed decides
//! on the calls and the disturbances; the machine's timing decides when they happen.

mod history;
mod leader;
mod workload;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ebs_csi_e2e::Fixture;
use ebs_csi_sandbox::{Co, Process, Simulator, ZONE};
use fastrand::Rng;
use leader::Leader;
use serde_json::json;

/// The controllers' `--drain-timeout`, and the time within which they must end.
const DRAIN: &str = "--drain-timeout=5s";
const GRACE: Duration = Duration::from_secs(20);
/// The most disturbances in one history.
const MOST: usize = 12;

type Disturbances = BTreeMap<&'static str, u64>;

fn millis(random: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.u64(range))
}

/// Disturbs the controllers, their leaders and EC2 repeatedly until all workloads have ended. A
/// single controller is only killed, while EC2 withholds a reply.
async fn disturb(
    simulator: &Simulator,
    replicas: &mut [&mut Process],
    leaders: &[Leader],
    random: &mut Rng,
    over: &Cell<bool>,
) -> Result<Disturbances, String> {
    let mut disturbances = Disturbances::new();
    let is_alone = replicas.len() == 1;
    for _ in 0..MOST {
        if !is_alone {
            tokio::time::sleep(millis(random, 20..400)).await;
        }
        if over.get() {
            break;
        }
        let which = random.usize(0..replicas.len());
        let what = match if is_alone { 7 } else { random.u32(0..10) } {
            0..=3 => {
                leaders[which].hand_over();
                "hand-over"
            }
            4 | 5 => {
                let begun = Instant::now();
                let ended = replicas[which].stop(GRACE).await;
                if !ended.map_err(|e| format!("SIGTERM: {e}"))? {
                    return Err(format!(
                        "{} got SIGTERM and had not ended {:?} later\n{}",
                        replicas[which].name(),
                        begun.elapsed(),
                        replicas[which].log_tail(30)
                    ));
                }
                restart(replicas[which], random).await?;
                "SIGTERM"
            }
            6 | 7 => {
                let is_held = history::withhold_reply(simulator, random, over).await;
                if is_alone && !is_held {
                    continue;
                }
                // One of two waits for the reply: this one, or the other while this one is killed.
                replicas[which].kill().await.map_err(|e| format!("kill: {e}"))?;
                restart(replicas[which], random).await?;
                if is_held { "kill while EC2 holds a reply" } else { "kill" }
            }
            8 => {
                let ms = random.u64(200..1_500);
                simulator.outage(ms).await.map_err(|e| format!("outage: {e}"))?;
                "outage"
            }
            _ => {
                let lost = json!({ "kind": "lose_reply", "how": "close", "effect": true });
                let rule = json!({ "probability": 0.3, "for_ms": 800, "match": { "action": "*" }, "fault": lost });
                simulator.fault(rule).await.map_err(|e| format!("fault: {e}"))?;
                "lost replies"
            }
        };
        *disturbances.entry(what).or_default() += 1;
    }
    Ok(disturbances)
}

async fn restart(replica: &mut Process, random: &mut Rng) -> Result<(), String> {
    tokio::time::sleep(millis(random, 10..400)).await;
    replica.start().map_err(|e| format!("starting: {e}"))
}

/// Runs the history of a seed, with one controller or two. Returns the counts of disturbances, or
/// what went wrong; `None` where the history cannot run.
async fn run(seed: u64, replicas: usize) -> Option<Result<Disturbances, String>> {
    let mut fixture = Fixture::with(|options| {
        history::without_disks(options);
        options.controller_arguments = vec![DRAIN.to_owned()];
    })
    .await?;
    while fixture.world.replicas.len() + 1 < replicas {
        let added = fixture.world.add_replica().await;
        fixture.must("a replica", async { added }).await;
    }
    let state_dir = fixture.world.state_dir().to_owned();
    let nodes = fixture.instances();
    let world = &mut fixture.world;
    let mut processes = vec![&mut world.controller];
    processes.extend(&mut world.replicas);
    let sockets: Vec<_> = processes.iter().map(|process| process.socket().to_owned()).collect();
    let mut leaders = Vec::new();
    let mut callers = Vec::new();
    // Two sets of sidecars: at the same time, one may call this controller and the other set the
    // other controller.
    for n in 0..replicas {
        let mut sockets = sockets.clone();
        sockets.rotate_left(n);
        let leader = Leader::new(state_dir.join(format!("leader-{n}.sock")), sockets);
        let leader = leader.expect("a socket to listen at");
        let mut co = Co::new(leader.socket(), ZONE).expect("a socket");
        (co.provisioner, co.attacher) = (fixture.co.provisioner, fixture.co.attacher);
        callers.push(co);
        leaders.push(leader);
    }
    let (mut random, over) = (Rng::with_seed(seed), Cell::new(false));
    let (kept, disturbances) = tokio::join!(
        history::run_workloads(&world.simulator, &callers, &nodes, seed, &over),
        disturb(&world.simulator, &mut processes, &leaders, &mut random, &over)
    );
    // Operations without a caller have noticed that by now, or have finished what EC2 had accepted.
    let finished = history::finish(fixture, kept, &callers[0]).await;
    Some(disturbances.and_then(|disturbances| finished.map(|()| disturbances)))
}

#[test]
fn two_controllers_leak_and_duplicate_nothing() {
    history::run_seeds(8, async |seed| run(seed, 2).await);
}

#[test]
fn repeated_controller_kills_leak_and_duplicate_nothing() {
    history::run_seeds(20, async |seed| run(seed, 1).await);
}
