//! A table of crashes: a SIGKILL of each process at each step of each operation, on ext4 and on
//! XFS. Some kills come a moment after the step, and some processes are killed a second time during
//! the retry. Consecutive seeds go through all cells: `CRASH_SEEDS=10000` tries so many seeds,
//! `CRASH_FIRST=N` begins with seed N.
use super::acts::{Act, EXAMINED, FORMAT, KEPT, in_a_runner, prepared, release};
use super::on_three_threads;
use crate::rig::{
    LONG, Random, Rig, able, check_filesystem, children, done, grows_mounted, staged, try_signal,
};
use ebs_csi_wire::{FsType, Outcome};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const SEEDS: u64 = 300;

/// Returns the steps of an act, each of which the act reaches.
fn steps(act: Act, fs: FsType) -> &'static [&'static str] {
    match act {
        Act::Format => &FORMAT,
        Act::Check | Act::Repair => &EXAMINED,
        Act::Growth if fs == FsType::Xfs => &["stage-created"],
        Act::Growth if grows_mounted() => &["stage-grown"],
        Act::Growth => &["runner-started", "tool-started", "stage-marked", "stage-grown"],
        Act::Mount => &["stage-prepared", "stage-created"],
        Act::Attach => &["stage-attached"],
        Act::Publish => &["publish-made", "publish-attached"],
        Act::Unpublish => &["unpublish-unmounted"],
        Act::Unstage => &["unstage-synced", "unstage-unmounted", "unstage-removed"],
        Act::PublishRaw | Act::Expand => &[],
    }
}

const ACTS: [Act; 9] = [
    Act::Format,
    Act::Check,
    Act::Repair,
    Act::Growth,
    Act::Mount,
    Act::Attach,
    Act::Publish,
    Act::Unpublish,
    Act::Unstage,
];
const VICTIMS: [&str; 6] = ["supervisor", "broker", "directories", "opener", "runner", "tool"];

#[derive(Clone, Copy, Debug)]
struct Crash {
    seed: u64,
    act: Act,
    fs: FsType,
    point: &'static str,
    victim: &'static str,
    /// `None`: the kill comes at the step. Otherwise the step is released, and the kill comes after
    /// this time.
    later: Option<Duration>,
    /// The time after the start of the retry at which the victim is killed once more.
    again: Option<Duration>,
}

fn cells() -> Vec<(Act, FsType, &'static str, &'static str)> {
    let mut cells = Vec::new();
    for act in ACTS {
        for fs in [FsType::Ext4, FsType::Xfs] {
            for point in steps(act, fs) {
                for victim in VICTIMS {
                    let there = match victim {
                        "runner" => in_a_runner(point),
                        "tool" => *point == "tool-started",
                        _ => true,
                    };
                    if there {
                        cells.push((act, fs, *point, victim));
                    }
                }
            }
        }
    }
    cells
}

fn crash(seed: u64, cells: &[(Act, FsType, &'static str, &'static str)]) -> Crash {
    let mut random = Random(seed);
    let at = usize::try_from(seed).expect("a seed") % cells.len();
    let (act, fs, point, victim) = cells[at];
    let mut moment = |one_in, micros| {
        let some = random.below(one_in) == 0;
        let after = Duration::from_micros(random.below(micros));
        some.then_some(after)
    };
    Crash { seed, act, fs, point, victim, later: moment(2, 4_000), again: moment(3, 30_000) }
}

/// Kills one process of the helper, and then the remaining ones, as the end of their container
/// does. Returns whether the victim existed.
fn kill(rig: &mut Rig, victim: &str) -> bool {
    let found = match victim {
        "supervisor" => Some(rig.pid()),
        "tool" => rig.part_now("runner").and_then(|runner| children(runner).first().copied()),
        other => rig.part_now(other),
    };
    if let Some(pid) = found {
        try_signal(pid, Signal::KILL);
    }
    if found.is_none() || matches!(victim, "runner" | "tool") {
        // The other processes notice the end and answer; then they are killed, too.
        std::thread::sleep(Duration::from_millis(3));
        try_signal(rig.pid(), Signal::KILL);
    }
    rig.ended();
    rig.end_all();
    found.is_some()
}

fn survives(crash: Crash) -> bool {
    let what = format!("seed {}: {crash:?}", crash.seed);
    let mut rig = Rig::start().expect("root");
    let (volume, attached, operation) = prepared(&rig, crash.act, crash.fs);
    rig.restart(&["--fault-point", crash.point]);
    let client = rig.call_until(crash.point, operation.clone());
    if let Some(later) = crash.later {
        release(&rig, crash.point);
        std::thread::sleep(later);
    }
    let mut killed = kill(&mut rig, crash.victim);
    drop(client);
    rig.run(&[]);
    if let Some(again) = crash.again {
        let mut client = rig.client();
        client.send(operation.clone(), LONG);
        std::thread::sleep(again);
        killed |= kill(&mut rig, crash.victim);
        drop(client);
        rig.run(&[]);
    }
    let outcome = rig.call(operation);
    match &outcome {
        Outcome::Staged(staged) => {
            let blank = crash.act == Act::Format;
            assert!(blank || !staged.formatted, "{what}: {outcome:?}");
        }
        Outcome::Done(_) => {}
        _ => panic!("{what}: {outcome:?}\n{}", rig.journal()),
    }
    not_stacked(&rig, &what);
    // Whatever the outcome was, the volume can be staged again with its content.
    rig.withdraw(&volume, "p");
    assert_eq!(rig.mounts(&attached), 0, "{what}");
    let last = staged(rig.stage_copy(&volume, crash.fs));
    assert!(!last.formatted, "{what}");
    if crash.act != Act::Format {
        assert_eq!(rig.staged_file(&volume, "kept"), KEPT, "{what}");
    }
    done(rig.unstage(&volume));
    check_filesystem(crash.fs, &attached.path());
    killed
}

/// Checks that no path beneath the kubelet root is mounted on twice.
#[track_caller]
fn not_stacked(rig: &Rig, what: &str) {
    let root = format!("{}/", rig.path("kubelet").display());
    let mut seen = BTreeMap::new();
    for line in rig.mountinfo().lines() {
        let path = line.split(' ').nth(4).unwrap_or_default().to_owned();
        if path.starts_with(&root) {
            *seen.entry(path).or_insert(0) += 1;
        }
    }
    assert!(seen.values().all(|times| *times == 1), "{what}: {seen:?}");
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect(name))
}

#[test]
fn random_crashes_leave_volume_stageable_and_intact() {
    if !able() {
        return;
    }
    let (first, seeds) = (number("CRASH_FIRST", 0), number("CRASH_SEEDS", SEEDS));
    let cells = cells();
    let began = Instant::now();
    let table = Mutex::new(BTreeMap::new());
    on_three_threads(first..first + seeds, |seed| {
        let crash = crash(seed, &cells);
        let killed = survives(crash);
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        let row: &mut (u64, u64) = table.entry((crash.act, crash.fs.as_str())).or_default();
        row.0 += 1;
        row.1 += u64::from(killed);
    });
    let table = table.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{:<12}{:<6}{:>8}{:>8}", "act", "fs", "seeds", "killed");
    for ((act, fs), (tried, killed)) in &table {
        println!("{:<12}{fs:<6}{tried:>8}{killed:>8}", format!("{act:?}"));
    }
    println!("{seeds} seeds, {} cells, {:?}", cells.len(), began.elapsed());
}
