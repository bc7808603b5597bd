//! More than one helper, and more than one agent.
use super::MIB;
use crate::attacks::row;
use crate::rig::{
    AGENT, Client, LONG, Rig, able, assert_refused, children, connect, done, shell, staged,
    staging, target,
};
use ebs_csi_wire::{FsType, Inspect, Operation, Outcome, Refusal, Unpublish, Unstage};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Instant;

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("pid");
    kill_process(pid, signal).expect("kill");
}

#[test]
fn second_helper_waits_until_first_helper_ends() {
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(mut rig) = Rig::start() else { return };
        let (volume, attached) = rig.new_disk(64 * MIB);
        staged(rig.stage(&volume, FsType::Ext4));
        let second = rig.second("run/helper.sock", &[]);
        second.wait_for(" waiting ");
        // The socket still belongs to the first helper.
        done(rig.publish(&volume, "p"));
        assert!(!second.journal().contains("serving"));
        send(rig.pid(), signal);
        second.wait_for(" supervisor ready ");
        assert!(done(rig.publish(&volume, "p")), "found as it is");
        done(rig.unpublish(&volume, &target(&volume, "p")));
        done(rig.unstage(&volume));
        assert_eq!(rig.mounts(&attached), 0);
        rig.ended();
    }
    row(
        "N15",
        "a second helper starts on the same kubelet root and socket",
        "it waits; the first keeps its socket; once that has ended or was killed, the second serves",
    );
}

/// The second helper never listens: it exits with 78 when its grace period is over, and with 0
/// after SIGTERM.
#[test]
fn waiting_second_helper_exits_78_or_on_sigterm() {
    let Some(rig) = Rig::start() else { return };
    let mut late = rig.second("run/other.sock", &["--grace", "0"]);
    let mut told = rig.second("run/third.sock", &[]);
    told.wait_for(" waiting ");
    send(told.pid(), Signal::TERM);
    assert_eq!(told.ended(), Some(0), "{}", told.journal());
    assert_eq!(late.ended(), Some(78), "{}", late.journal());
    late.wait_for("another mount-helper serves it");
    for socket in ["run/other.sock", "run/third.sock"] {
        assert!(!rig.path(socket).exists(), "{socket}");
    }
    // A helper on another kubelet root does not wait.
    let _beside = Rig::start_with(&[]);
    row(
        "N15",
        "a second helper starts on the same kubelet root with another socket, and the first stays",
        "it never listens, and ends with status 78, or with 0 when it is told to end",
    );
}

/// The first helper is terminated or killed while its format tool runs. The file system that the
/// second helper makes is sound.
#[test]
fn second_helper_formats_again_after_interrupted_format() {
    if !able() {
        return;
    }
    for (victim, signal) in
        [("supervisor", Signal::TERM), ("broker", Signal::KILL), ("supervisor", Signal::KILL)]
    {
        for fs_type in [FsType::Ext4, FsType::Xfs] {
            let mut rig = Rig::start_with(&["--fault-point", "tool-started", "--grace", "0"]);
            let (volume, attached) = rig.new_disk(512 * MIB);
            let mut client = rig.client();
            client.send(Operation::Stage(rig.staging(&volume, fs_type)), LONG);
            rig.wait_for("fault-point name=tool-started");
            let runner = rig.part("runner");
            let tool = children(runner);
            let second = rig.second("run/helper.sock", &[]);
            second.wait_for(" waiting ");
            match victim {
                "supervisor" => send(rig.pid(), signal),
                part => send(rig.part(part), signal),
            }
            second.wait_for(" supervisor ready ");
            // The fault point holds the child that would become the tool, and nothing else would
            // end that child.
            for pid in tool.into_iter().chain([runner]) {
                if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            let end = Instant::now() + LONG;
            let result = loop {
                match rig.stage(&volume, fs_type) {
                    Outcome::Staged(result) => break result,
                    other => assert!(Instant::now() < end, "{other:?}"),
                }
            };
            assert!(result.formatted, "{victim} {signal:?} {fs_type}");
            assert_eq!(rig.mounts(&attached), 1);
            done(rig.unstage(&volume));
            match fs_type {
                FsType::Xfs => shell("xfs_repair", &["-n", &attached.path()]),
                _ => shell("e2fsck", &["-fn", &attached.path()]),
            };
            rig.ended();
        }
    }
    row(
        "N15",
        "a helper is replaced, by signal or killed, while its format tool runs",
        "the next one serves when it has ended; the volume is formatted once more, and sound",
    );
}

/// Returns whether two agents with conflicting requests may get this answer.
fn is_an_answer(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(_) | Outcome::Staged(_) => true,
        Outcome::Refused(refused) => matches!(
            refused.reason,
            Refusal::Busy | Refusal::NotStaged | Refusal::StillHeld | Refusal::MountedDifferently
        ),
        _ => false,
    }
}

#[test]
fn concurrent_agents_on_same_volume_leave_no_mounts() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let round = |client: &mut Client, pod: &str| {
        for operation in [
            Operation::Stage(rig.staging(&volume, FsType::Ext4)),
            Operation::PublishFilesystem(rig.publishing(&volume, pod)),
            Operation::Unpublish(Unpublish {
                volume: volume.clone(),
                target: rig.kubelet(&target(&volume, pod)),
            }),
            Operation::Unstage(Unstage {
                volume: volume.clone(),
                staging: rig.kubelet(&staging(&volume)),
            }),
        ] {
            let outcome = client.ask(operation, LONG);
            assert!(is_an_answer(&outcome), "{outcome:?}");
        }
    };
    std::thread::scope(|scope| {
        // Two threads use a pod each, and two compete for one pod.
        for pod in ["one", "two", "both", "both"] {
            let round = &round;
            let rig = &rig;
            scope.spawn(move || {
                let mut client = Client::greeted(connect(&rig.socket(), AGENT));
                for _ in 0..15 {
                    round(&mut client, pod);
                }
            });
        }
    });
    for pod in ["one", "two", "both"] {
        done(rig.unpublish(&volume, &target(&volume, pod)));
    }
    done(rig.unstage(&volume));
    assert_eq!(rig.mounts(&attached), 0);
    let Outcome::Inventory(held) = rig.ask(Operation::Inspect(Inspect::default())) else {
        panic!("inventory expected");
    };
    assert!(held.volumes.is_empty() && held.operations.is_empty());
    assert_refused(rig.publish(&volume, "one"), Refusal::NotStaged);
    shell("e2fsck", &["-fn", &attached.path()]);
    assert_eq!(rig.journal().matches("tool=mke2fs").count(), 1);
    row(
        "N15",
        "four connections of agents stage, publish, unpublish and unstage one volume at once",
        "each is answered or told busy; formatted once, nothing is left mounted",
    );
}
