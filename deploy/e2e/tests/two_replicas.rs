//! Histories of two real controllers that serve one cluster at the same time. The sidecars'
//! leadership moves from one to the other in the middle of calls; the controllers get SIGTERM and
//! drain, are killed with SIGKILL between a request and its reply, and start again; EC2 becomes
//! unreachable for a while and loses replies. Nothing leaks, nothing is duplicated, every answer is
//! true, and a controller that gets SIGTERM ends.
//!
//! `HISTORY_SEEDS=7` runs one history, `HISTORY_SEEDS=1-200` a range; the default is the first 8. A
//! seed decides on the calls and the disturbances; the machine's timing decides when they happen.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ebs_csi_e2e::leader::Leader;
use ebs_csi_e2e::seeded_random::SeededRandom;
use ebs_csi_e2e::{Fixture, Requests, history};
use ebs_csi_sandbox::{Co, Process, Simulator, ZONE};
use serde_json::json;

/// The requests whose replies are withheld before a kill.
const CHANGES: [&str; 5] =
    ["CreateVolume", "AttachVolume", "DetachVolume", "ModifyVolume", "CreateSnapshot"];
/// The longest wait for such a request.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(1_000);
/// The controllers' `--drain-timeout`, and the time within which they must end.
const DRAIN: &str = "--drain-timeout=5s";
const GRACE: Duration = Duration::from_secs(20);
/// Number of concurrent histories, which mostly wait.
const AT_ONCE: usize = 3;
/// The most disturbances in one history.
const MOST: usize = 12;

/// Counts of each kind of disturbance.
type Disturbances = BTreeMap<&'static str, u64>;

/// Disturbs the controllers, their leaders and EC2 repeatedly until all workloads have ended.
async fn disturb(
    simulator: &Simulator,
    replicas: &mut [&mut Process; 2],
    leaders: &[Leader; 2],
    random: &SeededRandom,
    over: &Cell<bool>,
) -> Result<Disturbances, String> {
    let mut disturbances = Disturbances::new();
    for _ in 0..MOST {
        tokio::time::sleep(random.millis(20, 400)).await;
        if over.get() {
            break;
        }
        let which = usize::from(random.percent(50));
        let what = match random.below(10) {
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
                let held =
                    history::withhold_reply(simulator, random, over, &CHANGES, REQUEST_TIMEOUT)
                        .await;
                // Either this replica waits for the reply, or the other one does while this one is
                // killed.
                let killed = replicas[which].kill().await;
                killed.map_err(|e| format!("kill: {e}"))?;
                restart(replicas[which], random).await?;
                if held.is_some() { "kill while EC2 holds a reply" } else { "kill" }
            }
            8 => {
                let away = random.millis(200, 1_500).as_millis();
                Requests::new(simulator).outage(u64::try_from(away).expect("small")).await;
                "outage"
            }
            _ => {
                let lost = json!({ "kind": "lose_reply", "how": "close", "effect": true });
                let rule = json!({ "probability": 0.3, "for_ms": 800, "match": { "action": "*" }, "fault": lost });
                Requests::new(simulator).fault(rule).await;
                "lost replies"
            }
        };
        *disturbances.entry(what).or_default() += 1;
    }
    Ok(disturbances)
}

async fn restart(replica: &mut Process, random: &SeededRandom) -> Result<(), String> {
    tokio::time::sleep(random.millis(10, 400)).await;
    replica.start().map_err(|e| format!("starting: {e}"))
}

/// Runs the history of a seed. Returns the counts of disturbances, or what went wrong; `None` where
/// the history cannot run.
async fn run(seed: u64) -> Option<Result<Disturbances, String>> {
    let mut fixture = Fixture::with(|options| {
        history::without_disks(options);
        options.controller_arguments = vec![DRAIN.to_owned()];
    })
    .await?;
    let second = fixture.world.add_replica().await;
    fixture.must("a second replica", async { second }).await;
    let sockets = [
        fixture.world.controller_socket().to_owned(),
        fixture.world.replicas[0].socket().to_owned(),
    ];
    // Two sets of sidecars: at the same time, one may call this replica and the other set the other
    // replica.
    let leaders = [0, 1].map(|n: usize| {
        let socket = fixture.world.state_dir().join(format!("leader-{n}.sock"));
        let mut sockets = sockets.to_vec();
        sockets.rotate_left(n);
        Leader::new(socket, sockets).expect("a socket to listen at")
    });
    let callers = leaders.each_ref().map(|leader| {
        let mut co = Co::new(leader.socket(), ZONE).expect("a socket");
        (co.provisioner, co.attacher) = (fixture.co.provisioner, fixture.co.attacher);
        co
    });
    let nodes = fixture.instances();
    let (random, over) = (SeededRandom::new(seed), Cell::new(false));
    let world = &mut fixture.world;
    let mut replicas = [&mut world.controller, &mut world.replicas[0]];
    let (kept, disturbances) = tokio::join!(
        history::run_workloads(&world.simulator, &callers, &nodes, seed, &over),
        disturb(&world.simulator, &mut replicas, &leaders, &random, &over)
    );
    // Operations without a caller have noticed that by now, or have finished what EC2 had accepted.
    let finished = history::finish(fixture, kept, &callers[0]).await;
    Some(disturbances.and_then(|disturbances| finished.map(|()| disturbances)))
}

#[test]
fn two_controllers_leak_and_duplicate_nothing() {
    let mut all = Disturbances::new();
    for (what, often) in history::run_seeds(8, AT_ONCE, run).into_iter().flatten() {
        *all.entry(what).or_default() += often;
    }
    println!("{all:?}");
}
