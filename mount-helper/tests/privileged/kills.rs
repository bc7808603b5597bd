//! Every step of every operation, and every process killed there: the retry finds its way.
use crate::rig::{LONG, Rig, able, block_target, children, done, staged, staging, target, volume};
use ebs_csi_wire::{FsType, Operation, Outcome, PublishBlock, Unpublish, Unstage, VolumeId};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("pid");
    kill_process(pid, Signal::KILL).expect("kill");
}

/// What is asked, as a path through the life of a volume.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ask {
    Stage(FsType),
    Publish,
    PublishBlock,
    Unpublish,
    Unstage,
    Expand,
}

fn operation(rig: &Rig, ask: Ask, volume: &VolumeId) -> Operation {
    match ask {
        Ask::Stage(fs) => Operation::Stage(rig.staging(volume, fs)),
        Ask::Publish => Operation::PublishFilesystem(rig.publishing(volume, "p")),
        Ask::PublishBlock => Operation::PublishBlock(PublishBlock {
            disk: crate::rig::disk(volume),
            target: rig.kubelet(&block_target(volume, "p")),
            read_only: false,
        }),
        Ask::Unpublish => Operation::Unpublish(Unpublish {
            volume: volume.clone(),
            target: rig.kubelet(&target(volume, "p")),
        }),
        Ask::Unstage => Operation::Unstage(Unstage {
            volume: volume.clone(),
            staging: rig.kubelet(&staging(volume)),
        }),
        Ask::Expand => Operation::Expand(ebs_csi_wire::Expand {
            volume: volume.clone(),
            path: rig.kubelet(&staging(volume)),
            required_bytes: None,
            limit_bytes: None,
        }),
    }
}

/// What must have been done before the asked operation, and what state its success leaves: mounts of the device.
fn around(ask: Ask) -> (Vec<Ask>, usize) {
    match ask {
        Ask::Stage(_) => (vec![], 1),
        Ask::Publish => (vec![Ask::Stage(FsType::Ext4)], 2),
        Ask::PublishBlock => (vec![], 0),
        Ask::Unpublish => (vec![Ask::Stage(FsType::Ext4), Ask::Publish], 1),
        Ask::Unstage => (vec![Ask::Stage(FsType::Ext4)], 0),
        Ask::Expand => (vec![Ask::Stage(FsType::Xfs)], 1),
    }
}

#[track_caller]
fn succeeded(outcome: &Outcome) {
    assert!(
        !matches!(
            outcome,
            Outcome::Refused(_) | Outcome::Failed(_) | Outcome::Pending
        ),
        "{outcome:?}"
    );
}

/// Hold the operation at a step, kill one process there, and ask again, of a new helper where the tree has ended.
fn survives(ask: Ask, point: &str, victim: &str) {
    let (before, mounts) = around(ask);
    let mut rig = Rig::start();
    let volume = volume();
    let attached = rig.attach(&volume, 512 * MIB);
    for earlier in before {
        succeeded(&rig.ask(operation(&rig, earlier, &volume)));
    }
    if ask == Ask::Expand {
        attached.resize(1024 * MIB);
    }
    rig.stop();
    rig.run(&["--fault-point", point]);
    let mut client = rig.client();
    client.send(operation(&rig, ask, &volume), LONG);
    rig.wait_for(&format!("fault-point name={point}"));
    match victim {
        "broker" | "directories" => {
            kill(rig.part(victim));
            assert_ne!(rig.ended(), Some(0));
        }
        "supervisor" => {
            kill(rig.pid());
            rig.ended();
        }
        _ => {
            let runner = rig.part("runner");
            kill(if victim == "tool" {
                children(runner)[0]
            } else {
                runner
            });
            if victim == "tool" {
                // The runner is held by the fault point itself: it goes with the tree.
                kill(runner);
            }
            let outcome = client.receive().expect("an answer");
            assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
            rig.stop();
        }
    }
    rig.run(&[]);
    succeeded(&rig.ask(operation(&rig, ask, &volume)));
    assert_eq!(rig.mounts(&attached), mounts, "{ask:?} {point} {victim}");
    // Whatever was done twice, all of it can be undone.
    done(rig.unpublish(&volume, &target(&volume, "p")));
    done(rig.unpublish(&volume, &block_target(&volume, "p")));
    done(rig.unstage(&volume));
    assert_eq!(rig.mounts(&attached), 0);
    println!("{ask:?} {point} {victim}: converged");
}

const STAGE: Ask = Ask::Stage(FsType::Ext4);

#[test]
fn a_broker_may_die_at_every_step() {
    if !able() {
        return;
    }
    for (ask, point) in [
        (STAGE, "stage-found"),
        (STAGE, "stage-looked"),
        (STAGE, "stage-made"),
        (STAGE, "stage-formatted"),
        (STAGE, "stage-prepared"),
        (STAGE, "stage-created"),
        (STAGE, "stage-attached"),
        (Ask::Stage(FsType::Xfs), "stage-formatted"),
        (Ask::Publish, "publish-made"),
        (Ask::Publish, "publish-attached"),
        (Ask::PublishBlock, "publish-block-made"),
        (Ask::PublishBlock, "publish-block-attached"),
        (Ask::Expand, "expand-grown"),
        (Ask::Unpublish, "unpublish-unmounted"),
        (Ask::Unstage, "unstage-synced"),
        (Ask::Unstage, "unstage-unmounted"),
    ] {
        survives(ask, point, "broker");
    }
}

#[test]
fn a_supervisor_or_the_directories_process_may_die_in_the_middle() {
    if !able() {
        return;
    }
    for victim in ["supervisor", "directories"] {
        survives(STAGE, "stage-prepared", victim);
        survives(Ask::Publish, "publish-made", victim);
        survives(Ask::Unstage, "unstage-unmounted", victim);
    }
}

#[test]
fn a_runner_or_its_tool_may_die() {
    if !able() {
        return;
    }
    for fs in [FsType::Ext4, FsType::Xfs] {
        survives(Ask::Stage(fs), "runner-started", "runner");
        survives(Ask::Stage(fs), "tool-started", "runner");
        survives(Ask::Stage(fs), "tool-started", "tool");
        survives(Ask::Stage(fs), "runner-finished", "runner");
    }
    survives(STAGE, "tool-started", "broker");
}

#[test]
fn a_tool_does_not_outlive_its_helper() {
    if !able() {
        return;
    }
    let mut rig = Rig::start_with(&["--fault-point", "tool-started", "--grace", "0"]);
    let volume = volume();
    let _attached = rig.attach(&volume, 64 * MIB);
    let mut client = rig.client();
    client.send(Operation::Stage(rig.staging(&volume, FsType::Ext4)), LONG);
    rig.wait_for("fault-point name=tool-started");
    let runner = rig.part("runner");
    let tool = children(runner)[0];
    kill(runner);
    while std::path::Path::new(&format!("/proc/{tool}/exe")).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    rig.stop();
    rig.run(&[]);
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
}
