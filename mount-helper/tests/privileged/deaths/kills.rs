//! A table of each named step of each operation and of each process that is killed at the step: a
//! repeated request succeeds. The test prints the table.
use super::crashes::in_a_runner;
use super::on_three_threads;
use crate::rig::{
    Attached, MIB, Rig, able, children, disk, done, grows_mounted, retry_refused, send_signal,
    shell, sources, staged, staging, target, volume, wait_until,
};
use ebs_csi_wire::{FsType, Operation, Outcome, VolumeId};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Stage(FsType),
    /// The stage of an ext4 that was not unmounted cleanly.
    Check,
    /// The stage of an ext4 whose disk has grown.
    Grow,
    Publish,
    PublishBlock,
    Unpublish,
    Unstage,
    Expand,
}

fn operation(rig: &Rig, act: Act, volume: &VolumeId) -> Operation {
    match act {
        Act::Stage(fs) => rig.stage_operation(volume, fs),
        Act::Check | Act::Grow => rig.stage_operation(volume, FsType::Ext4),
        Act::Publish => rig.publish_operation(volume, "p"),
        Act::PublishBlock => rig.block_operation(&disk(volume), "p", false),
        Act::Unpublish => rig.unpublish_operation(volume, &target(volume, "p")),
        Act::Unstage => rig.unstage_operation(volume, &staging(volume)),
        Act::Expand => rig.expand_operation(volume, &staging(volume), 0, 0),
    }
}

/// Returns the requests that must precede this one, and the number of the device's mounts after its
/// success.
fn around(act: Act) -> (Vec<Act>, usize) {
    match act {
        Act::Stage(_) => (vec![], 1),
        Act::Check | Act::Grow => (vec![Act::Stage(FsType::Ext4), Act::Unstage], 1),
        Act::Publish => (vec![Act::Stage(FsType::Ext4)], 2),
        Act::PublishBlock => (vec![], 0),
        Act::Unpublish => (vec![Act::Stage(FsType::Ext4), Act::Publish], 1),
        Act::Unstage => (vec![Act::Stage(FsType::Ext4)], 0),
        Act::Expand => (vec![Act::Stage(FsType::Xfs)], 1),
    }
}

#[track_caller]
fn succeeded(what: &str, outcome: &Outcome) {
    assert!(
        !matches!(outcome, Outcome::Refused(_) | Outcome::Failed(_) | Outcome::Pending),
        "{what}: {outcome:?}"
    );
}

/// The killed processes. The agent's death is the end of its connection, after which the operation
/// continues.
const VICTIMS: [&str; 7] =
    ["agent", "supervisor", "broker", "directories", "opener", "runner", "tool"];

fn there((act, point): (Act, &str), victim: &str) -> bool {
    // Where the host allows it, the kernel grows the mounted file system, and no tool runs.
    if act == Act::Grow && point != "stage-grown" && grows_mounted() {
        return false;
    }
    match victim {
        // A growth runs two tools, and the fault point would hold each of them until a signal.
        "agent" => act != Act::Grow || !in_a_runner(point),
        "runner" => in_a_runner(point),
        "tool" => point == "tool-started",
        _ => true,
    }
}

fn prepare(act: Act, attached: &Attached) {
    match act {
        Act::Check => {
            shell("debugfs", &["-w", "-R", "ssv state 0", &attached.path()]);
        }
        Act::Expand | Act::Grow => attached.resize(512 * MIB),
        _ => {}
    }
}

/// The kernel grows the file system after the mount, where the host allows it.
#[test]
fn restarted_helper_completes_stage_killed_after_growth() {
    for victim in ["supervisor", "broker", "directories"] {
        survives(Act::Grow, "stage-grown", victim);
    }
    // Printed for the console of the virtual machine.
    println!("killed once it grew, mounted: {}", grows_mounted());
}

/// Holds the operation at a step, kills one process there, and repeats the request. A new helper
/// answers it where the kill has ended the helper.
fn survives(act: Act, point: &str, victim: &str) {
    let (before, mounts) = around(act);
    let Some(mut rig) = Rig::start() else { return };
    let volume = volume();
    // mkfs.xfs refuses much smaller disks.
    let attached = rig.attach(&volume, 320 * MIB);
    for earlier in before {
        succeeded("before", &rig.call(operation(&rig, earlier, &volume)));
    }
    prepare(act, &attached);
    rig.restart(&["--fault-point", point]);
    let mut client = rig.call_until(point, operation(&rig, act, &volume));
    let runner = in_a_runner(point).then(|| rig.part("runner"));
    match victim {
        "agent" => {
            drop(client);
            send_signal(runner.unwrap_or_else(|| rig.part("broker")), Signal::USR1);
        }
        "supervisor" | "broker" | "directories" | "opener" => {
            send_signal(
                if victim == "supervisor" { rig.pid() } else { rig.part(victim) },
                Signal::KILL,
            );
            assert_ne!(rig.ended(), Some(0));
            // A runner that is released finds no peer and ends. When the broker was killed, the
            // supervisor has ended the runners.
            if let Some(runner) = runner.filter(|_| victim == "supervisor") {
                send_signal(runner, Signal::USR1);
            }
        }
        _ => {
            let runner = runner.expect("a step of a runner");
            send_signal(if victim == "tool" { children(runner)[0] } else { runner }, Signal::KILL);
            if victim == "tool" {
                // The fault point holds the runner itself, so the runner is killed as well.
                send_signal(runner, Signal::KILL);
            }
            let outcome = client.receive().expect("an answer");
            assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
            rig.stop();
        }
    }
    if victim == "agent" {
        // The step has passed. A new agent connects, and finds the result or joins the running
        // operation.
        rig.inventory();
    } else {
        rig.run(&[]);
    }
    let what = format!("{act:?} {point} {victim}");
    // The kernel releases the disk of a killed process a moment after the process has ended.
    let repeated = || rig.call(operation(&rig, act, &volume));
    succeeded(&what, &retry_refused(repeated));
    assert_eq!(rig.mounts(&attached), mounts, "{what}");
    // Each effect can be undone, even one that happened twice.
    done(rig.unpublish(&volume, &target(&volume, "p")));
    done(rig.unpublish_block(&volume, "p"));
    done(rig.unstage(&volume));
    assert_eq!(rig.mounts(&attached), 0);
}

const STAGE: Act = Act::Stage(FsType::Ext4);
const XFS: Act = Act::Stage(FsType::Xfs);

/// Each fault point of `src`, with an operation that reaches it.
const STEPS: [(Act, &str); 28] = [
    (STAGE, "stage-found"),
    (STAGE, "stage-looked"),
    (STAGE, "runner-started"),
    (STAGE, "tool-started"),
    (STAGE, "runner-finished"),
    (STAGE, "stage-made"),
    (STAGE, "stage-formatted"),
    (STAGE, "stage-prepared"),
    (STAGE, "stage-created"),
    (STAGE, "stage-attached"),
    (XFS, "runner-started"),
    (XFS, "tool-started"),
    (XFS, "runner-finished"),
    (XFS, "stage-formatted"),
    (Act::Check, "tool-started"),
    (Act::Check, "stage-checked"),
    (Act::Grow, "tool-started"),
    (Act::Grow, "stage-marked"),
    (Act::Grow, "stage-grown"),
    (Act::Publish, "publish-made"),
    (Act::Publish, "publish-attached"),
    (Act::PublishBlock, "publish-block-made"),
    (Act::PublishBlock, "publish-block-attached"),
    (Act::Expand, "expand-grown"),
    (Act::Unpublish, "unpublish-unmounted"),
    (Act::Unstage, "unstage-synced"),
    (Act::Unstage, "unstage-unmounted"),
    (Act::Unstage, "unstage-removed"),
];

/// After a kill of any process at any step, the repeated request has the same result as without the
/// kill.
#[test]
fn retried_request_converges_after_kill_at_any_step() {
    if !able() {
        return;
    }
    let cells = || {
        let all = STEPS.iter().flat_map(|step| VICTIMS.map(|victim| (*step, victim)));
        all.filter(|(step, victim)| there(*step, victim))
    };
    let converged = Mutex::new(BTreeSet::new());
    on_three_threads(cells(), |((act, point), victim)| {
        survives(act, point, victim);
        let mut converged = converged.lock().unwrap_or_else(PoisonError::into_inner);
        converged.insert((format!("{act:?} {point}"), victim));
    });
    let converged = converged.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{:<40}{}", "killed at", VICTIMS.map(|v| format!("{v:<12}")).concat());
    for (act, point) in &STEPS {
        let name = format!("{act:?} {point}");
        let cells = VICTIMS.map(|victim| {
            let cell = if converged.contains(&(name.clone(), victim)) { "converged" } else { "-" };
            format!("{cell:<12}")
        });
        println!("{name:<40}{}", cells.concat());
    }
    assert_eq!(converged.len(), cells().count());
}

/// The table leaves out no step: its names are those in the program's source.
#[test]
fn kill_table_lists_every_fault_point() {
    let mut named = BTreeSet::new();
    for text in sources("src") {
        for rest in text.split("fault_point::reached(\"").skip(1) {
            named.insert(rest.split('"').next().unwrap_or_default().to_owned());
        }
    }
    let listed: BTreeSet<_> = STEPS.iter().map(|(_, point)| (*point).to_owned()).collect();
    assert_eq!(named, listed);
}

#[test]
fn tool_ends_when_its_runner_is_killed() {
    let Some(mut rig) = Rig::start_held("tool-started") else { return };
    let (volume, _attached) = rig.new_disk(64 * MIB);
    let _client = rig.call_until("tool-started", rig.stage_operation(&volume, FsType::Ext4));
    let runner = rig.part("runner");
    let tool = children(runner)[0];
    send_signal(runner, Signal::KILL);
    let program = format!("/proc/{tool}/exe");
    wait_until(|| format!("{program} is left"), || !Path::new(&program).exists());
    rig.restart(&[]);
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
}
