//! Runs histories of the CSI service under virtual time: two replicas that die between any request
//! and its reply, an EC2 that fails, gives stale answers and is used by others, and sidecars that
//! call as the real ones do. At the end EC2 must hold exactly what the callers know of, and every
//! answer on the way must have been true.
//!
//! A seed decides everything. `HISTORY_SEEDS=1-100000` runs that range; `HISTORY_SEEDS=17
//! HISTORY_SHOW=1 … -- --nocapture` shows one history, request by request.

mod answer_checks;
mod connection;
mod fault_plan;
mod history;
mod known_bug;
mod mass_failover;
mod orchestrator;
mod replica;
mod seeded_random;
mod seeds;
mod waiting_callers;
mod workload;
#[path = "../world/mod.rs"]
mod world;

use known_bug::KnownBug;
use mass_failover::{LateReads, MassFailover};
use std::sync::Mutex;

#[test]
fn nothing_leaks_or_doubles_and_answers_are_true() {
    let seeds = seeds::selected();
    let which = format!("{}..={}", seeds[0], seeds[seeds.len() - 1]);
    let (requests, failed) = seeds::run(&seeds);
    println!("{} histories of {which}: {requests} requests, {} failed", seeds.len(), failed.len());
    assert!(
        failed.is_empty(),
        "{} histories failed; show one with HISTORY_SEEDS=N HISTORY_SHOW=1 cargo test -p ebs-csi-controller --test histories nothing -- --nocapture\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[test]
fn a_seed_replays_its_history_exactly() {
    let lines = |seed| history::run(seed, None).log_lines;
    for seed in [3, 7] {
        let (first, second) = (lines(seed), lines(seed));
        for (n, (a, b)) in first.iter().zip(&second).enumerate() {
            assert_eq!(a, b, "seed {seed}, line {n}");
        }
        assert_eq!(first.len(), second.len());
    }
    assert_ne!(lines(3), lines(7));
}

/// Shows that the runner finds known bugs of other drivers.
#[test]
fn injected_known_bugs_are_found_within_100_seeds() {
    let bugs = [
        KnownBug::TokenBumpWithoutAdoption,
        KnownBug::SnapshotWithoutLookUp,
        KnownBug::BatchErrorToAll,
    ];
    std::thread::scope(|scope| {
        let runs = bugs.map(|bug| scope.spawn(move || seeds::first_that_finds(bug, 1..=100)));
        for (bug, run) in bugs.into_iter().zip(runs) {
            match run.join().unwrap() {
                Some((seed, violations)) => println!("{bug:?}: seed {seed}: {violations}"),
                None => panic!("{bug:?} is not found"),
            }
        }
    });
}

/// `FAILOVER_SEEDS=1-1000` runs that range.
#[test]
fn mass_failover_detaches_from_no_running_holder() {
    let seeds = seeds::range_of("FAILOVER_SEEDS").unwrap_or_else(|| (1..=2).collect());
    let all = Mutex::new(MassFailover::default());
    seeds::each(&seeds, |seed| {
        let seen = mass_failover::run(seed, LateReads::ACCEPTED);
        let mut all = all.lock().unwrap();
        all.detaches += seen.detaches;
        all.refusals += seen.refusals;
        all.violations.extend(seen.violations.iter().map(|what| format!("seed {seed}: {what}")));
    });
    let MassFailover { detaches, refusals, violations } = all.into_inner().unwrap();
    println!("{} mass failovers: {detaches} detaches, {refusals} refusals", seeds.len());
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Shows that the runner finds a detach from a running holder.
#[test]
fn reads_older_than_a_boot_are_caught() {
    let seen = mass_failover::run(1, LateReads::OLDER_THAN_BOOT);
    let found = seen.violations.iter().find(|what| what.contains("runs: Action=DetachVolume"));
    println!("{}", found.expect("a violation"));
}
