//! A table of each named step of each operation and of each process that is killed at the step: a
//! repeated request succeeds.
use super::acts::{Act, FORMAT, in_a_runner, prepared};
use super::on_three_threads;
use crate::rig::{
    MIB, Rig, able, children, done, grows_mounted, retry_refused, send_signal, shell, staged,
    target, wait_until,
};
use ebs_csi_wire::{FsType, Outcome};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;

/// The killed processes. The agent's death is the end of its connection, after which the operation
/// continues.
const VICTIMS: [&str; 7] =
    ["agent", "supervisor", "broker", "directories", "opener", "runner", "tool"];

fn there(act: Act, point: &str, victim: &str) -> bool {
    // Where the host allows it, the kernel grows the mounted file system, and no tool runs.
    if act == Act::Growth && point != "stage-grown" && grows_mounted() {
        return false;
    }
    match victim {
        // A growth runs two tools, and the fault point would hold each of them until a signal.
        "agent" => act != Act::Growth || !in_a_runner(point),
        "runner" => in_a_runner(point),
        "tool" => point == "tool-started",
        _ => true,
    }
}

/// The kernel grows the file system after the mount, where the host allows it.
#[test]
fn restarted_helper_completes_stage_killed_after_growth() {
    for victim in ["supervisor", "broker", "directories"] {
        survives(Act::Growth, FsType::Ext4, "stage-grown", victim);
    }
    // Printed for the console of the virtual machine.
    println!("killed once it grew, mounted: {}", grows_mounted());
}

/// Holds the operation at a step, kills one process there, and repeats the request. A new helper
/// answers it where the kill has ended the helper.
fn survives(act: Act, fs: FsType, point: &str, victim: &str) {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached, operation) = prepared(&rig, act, fs);
    rig.restart(&["--fault-point", point]);
    let mut client = rig.call_until(point, operation.clone());
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
    let what = format!("{act:?} {fs} {point} {victim}");
    // The kernel releases the disk of a killed process a moment after the process has ended.
    let outcome = retry_refused(|| rig.call(operation.clone()));
    assert!(!matches!(outcome, Outcome::Failed(_) | Outcome::Pending), "{what}: {outcome:?}");
    let mounts = match act {
        Act::PublishRaw | Act::Unstage => 0,
        Act::Publish => 2,
        _ => 1,
    };
    assert_eq!(rig.mounts(&attached), mounts, "{what}");
    // Each effect can be undone, even one that happened twice.
    done(rig.unpublish(&volume, &target(&volume, "p")));
    done(rig.unpublish_block(&volume, "p"));
    done(rig.unstage(&volume));
    assert_eq!(rig.mounts(&attached), 0);
}

/// Each fault point of `src`, with an operation that reaches it.
const STEPS: [(Act, FsType, &[&str]); 10] = [
    (Act::Format, FsType::Ext4, &FORMAT),
    (Act::Format, FsType::Ext4, &["stage-created", "stage-attached"]),
    (
        Act::Format,
        FsType::Xfs,
        &["runner-started", "tool-started", "runner-finished", "stage-formatted"],
    ),
    (Act::Check, FsType::Ext4, &["tool-started", "stage-checked"]),
    (Act::Growth, FsType::Ext4, &["tool-started", "stage-marked", "stage-grown"]),
    (Act::Publish, FsType::Ext4, &["publish-made", "publish-attached"]),
    (Act::PublishRaw, FsType::Ext4, &["publish-block-made", "publish-block-attached"]),
    (Act::Expand, FsType::Xfs, &["expand-grown"]),
    (Act::Unpublish, FsType::Ext4, &["unpublish-unmounted"]),
    (Act::Unstage, FsType::Ext4, &["unstage-synced", "unstage-unmounted", "unstage-removed"]),
];

#[test]
fn retried_request_converges_after_kill_at_any_step() {
    if !able() {
        return;
    }
    let steps =
        STEPS.iter().flat_map(|(act, fs, points)| points.iter().map(move |p| (*act, *fs, *p)));
    let cells = steps.flat_map(|step| VICTIMS.map(|victim| (step, victim)));
    let cells = cells.filter(|((act, _, point), victim)| there(*act, point, victim));
    on_three_threads(cells, |((act, fs, point), victim)| survives(act, fs, point, victim));
}

/// The table leaves out no step: its names are those in the program's source.
#[test]
fn kill_table_lists_every_fault_point() {
    let source = std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo") + "/src";
    let reached = shell("grep", &["-rhoE", "fault_point::reached\\(\"[^\"]+", &source]);
    let named: BTreeSet<_> = reached.lines().filter_map(|call| call.split('"').nth(1)).collect();
    let listed: BTreeSet<_> = STEPS.iter().flat_map(|(_, _, points)| *points).copied().collect();
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
