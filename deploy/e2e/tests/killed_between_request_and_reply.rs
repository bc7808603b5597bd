//! Histories of the real controller, which is killed with SIGKILL between a request to EC2 and its
//! reply, again and again: nothing leaks, nothing is duplicated, every answer is true.
//!
//! `HISTORY_SEEDS=7` runs one history, `HISTORY_SEEDS=1-200` a range; the default is the first 20.
//! A seed decides on the calls and on the kinds of requests after which the controller is killed;
//! the machine's timing decides which of them comes first.

use std::cell::Cell;
use std::time::Duration;

use ebs_csi_e2e::seeded_random::SeededRandom;
use ebs_csi_e2e::{Fixture, history};
use ebs_csi_sandbox::{Process, Simulator};

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
const REQUEST_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Number of concurrent histories, which mostly wait.
const AT_ONCE: usize = 4;
/// The most kills in one history.
const MOST_KILLS: usize = 8;

/// Kills the controller repeatedly while it waits for a reply of EC2. Returns the actions after
/// which it was killed, when all workloads have ended.
async fn kill_repeatedly(
    simulator: &Simulator,
    controller: &mut Process,
    random: &SeededRandom,
    over: &Cell<bool>,
) -> Vec<&'static str> {
    let mut killed = Vec::new();
    while !over.get() && killed.len() < MOST_KILLS {
        let action =
            history::withhold_reply(simulator, random, over, &CHANGES, REQUEST_TIMEOUT).await;
        if let Some(action) = action {
            controller.kill().await.expect("kill");
            killed.push(action);
            tokio::time::sleep(random.millis(10, 400)).await;
            controller.start().expect("the controller starts");
        }
    }
    killed
}

/// Runs the history of a seed. Returns the requests after which the controller was killed, or what
/// went wrong; `None` where the history cannot run.
async fn run(seed: u64) -> Option<Result<Vec<&'static str>, String>> {
    let mut fixture = Fixture::with(history::without_disks).await?;
    let (nodes, callers) = (fixture.instances(), [fixture.co.clone()]);
    let (random, over) = (SeededRandom::new(seed), Cell::new(false));
    let world = &mut fixture.world;
    let (kept, killed) = tokio::join!(
        history::run_workloads(&world.simulator, &callers, &nodes, seed, &over),
        kill_repeatedly(&world.simulator, &mut world.controller, &random, &over)
    );
    Some(history::finish(fixture, kept, &callers[0]).await.map(|()| killed))
}

#[test]
fn repeated_controller_kills_leak_and_duplicate_nothing() {
    let killed = history::run_seeds(20, AT_ONCE, run);
    let kills: usize = killed.iter().map(Vec::len).sum();
    println!("killed {kills} times between a request and its reply");
}
