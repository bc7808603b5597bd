//! Histories of the real controller, which is killed with SIGKILL between a request to EC2 and its
//! reply, again and again: nothing leaks, nothing is duplicated, every answer is true.
//!
//! `HISTORY_SEEDS=7` runs one history, `HISTORY_SEEDS=1-200` a range; the default is the first 20.
//! A seed decides on the calls and on the kinds of requests after which the controller is killed;
//! the machine's timing decides which of them comes first.

use std::cell::Cell;
use std::time::{Duration, Instant};

use ebs_csi_e2e::seeded_random::SeededRandom;
use ebs_csi_e2e::workload::{Kept, live};
use ebs_csi_e2e::{Requests, Setting, seeds};
use ebs_csi_sandbox::{Process, Simulator};
use serde_json::{Value, json};

const SCENARIO: &str = "\
profile = \"fast\"
[quotas]
modifications_per_day = 100
";
/// The requests after which the controller is killed.
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
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Number of concurrent histories, which mostly wait.
const AT_ONCE: usize = 4;
/// The most kills in one history.
const MOST_KILLS: usize = 8;

/// Lets EC2 withhold the reply to one change after the other, and kills the controller while it
/// waits for the reply. Returns the actions after which it was killed, when all workloads have
/// ended.
async fn kill_again_and_again(
    simulator: &Simulator,
    controller: &mut Process,
    random: &SeededRandom,
    over: &Cell<bool>,
) -> Vec<&'static str> {
    let requests = Requests::new(simulator);
    let mut killed = Vec::new();
    while !over.get() && killed.len() < MOST_KILLS {
        let id = format!("held-{}", random.below(u64::MAX));
        let action = CHANGES[usize::try_from(random.below(7)).expect("small")];
        let mark = requests.mark().await;
        let held =
            json!({ "kind": "lose_reply", "how": "hang", "effect": true, "hold_ms": 120_000 });
        requests
            .fault(json!({ "id": id, "match": { "action": action }, "count": 1, "fault": held }))
            .await;
        let until = Instant::now() + PATIENCE;
        while !over.get() && Instant::now() < until {
            let struck = |record: &Value| {
                record["faults"].as_array().is_some_and(|all| all.contains(&json!(id)))
            };
            if requests.mutations(mark).await.iter().any(struck) {
                controller.kill().await.expect("kill");
                killed.push(action);
                tokio::time::sleep(random.millis(10, 400)).await;
                controller.start().expect("the controller starts");
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The fault may have been applied or not; in both cases it is no longer needed.
        let _ = simulator.delete(&format!("/v1/faults/{id}")).await;
    }
    killed
}

/// Runs the history of a seed. Returns the requests after which the controller was killed, or what
/// went wrong; `None` where the history cannot run.
async fn history(seed: u64) -> Option<Result<Vec<&'static str>, String>> {
    let mut setting = Setting::with(|options| {
        options.devices = "none".to_owned();
        options.one_zone = true;
        options.scenario = SCENARIO.to_owned();
    })
    .await?;
    let nodes: Vec<String> =
        setting.world.options().nodes.iter().map(|node| node.instance.clone()).collect();
    let (random, over) = (SeededRandom::of(seed), Cell::new(false));
    let simulator = &setting.world.simulator;
    let life = |n: u64| {
        let name = format!("pvc-{n}");
        let random = SeededRandom::of(seed * 1_000 + n);
        let (co, nodes) = (setting.co.clone(), &nodes);
        async move { live(co, Requests::new(simulator), nodes, &name, random).await }
    };
    let lives = async {
        let lives = tokio::join!(life(1), life(2), life(3), life(4));
        over.set(true);
        lives
    };
    let controller = &mut setting.world.controller;
    let (lives, killed) =
        tokio::join!(lives, kill_again_and_again(simulator, controller, &random, &over));
    let mut kept = Kept::default();
    for life in <[_; 4]>::from(lives) {
        match life {
            Ok(left) => kept = kept.and(left),
            Err(error) => return Some(Err(format!("{error}\n{}", setting.logs()))),
        }
    }
    let found = Kept::found(&setting.world.simulator).await;
    if found != kept {
        return Some(Err(format!(
            "the callers know {kept:#?}\nEC2 holds {found:#?}\n{}",
            setting.logs()
        )));
    }
    if let Err(error) = kept.clear(&setting.co).await {
        return Some(Err(format!("clearing up: {error}")));
    }
    setting.finish().await;
    Some(Ok(killed))
}

#[test]
fn repeated_controller_kills_leak_and_duplicate_nothing() {
    let lives = seeds::each(20, AT_ONCE, history);
    let kills: usize = lives.iter().map(Vec::len).sum();
    println!("killed {kills} times between a request and its reply");
}
