//! More than one helper, and more than one agent.
use crate::rig::{
    Client, LONG, MIB, Rig, assert_refused, check_filesystem, children, done, send_signal, staging,
    target, try_signal,
};
use ebs_csi_wire::{FsType, Outcome, Refusal};
use rustix::process::Signal;
use std::time::Instant;

/// N15: a second helper starts on the same kubelet root and socket.
#[test]
fn second_helper_waits_until_first_helper_ends() {
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(mut rig) = Rig::start() else { return };
        let (volume, attached) = rig.staged_disk(64 * MIB, FsType::Ext4);
        let second = rig.second("run/helper.sock", &[]);
        second.wait_for(" waiting ");
        // The socket still belongs to the first helper.
        done(rig.publish(&volume, "p"));
        assert!(!second.journal().contains("serving"));
        send_signal(rig.pid(), signal);
        second.wait_for(" supervisor ready ");
        assert!(done(rig.publish(&volume, "p")), "found as it is");
        rig.withdraw(&volume, "p");
        assert_eq!(rig.mounts(&attached), 0);
        rig.ended();
    }
}

/// N15: The second helper never listens: it exits with 78 when its grace period is over, and with 0
/// after SIGTERM.
#[test]
fn waiting_second_helper_exits_78_or_on_sigterm() {
    let Some(rig) = Rig::start() else { return };
    let mut late = rig.second("run/other.sock", &["--grace", "0"]);
    let mut terminated = rig.second("run/third.sock", &[]);
    terminated.wait_for(" waiting ");
    send_signal(terminated.pid(), Signal::TERM);
    assert_eq!(terminated.ended(), Some(0), "{}", terminated.journal());
    assert_eq!(late.ended(), Some(78), "{}", late.journal());
    late.wait_for("another mount-helper serves it");
    for socket in ["run/other.sock", "run/third.sock"] {
        assert!(!rig.path(socket).exists(), "{socket}");
    }
    // A helper on another kubelet root does not wait.
    let Some(_beside) = Rig::start() else { return };
}

/// N15: The first helper is terminated or killed while its format tool runs. The file system that
/// the second helper makes is sound.
#[test]
fn second_helper_formats_again_after_interrupted_format() {
    for (victim, signal) in
        [("supervisor", Signal::TERM), ("broker", Signal::KILL), ("supervisor", Signal::KILL)]
    {
        for fs_type in [FsType::Ext4, FsType::Xfs] {
            let Some(mut rig) = Rig::start_held("tool-started") else { return };
            let (volume, attached) = rig.new_disk(512 * MIB);
            let _client = rig.call_until("tool-started", rig.stage_operation(&volume, fs_type));
            let runner = rig.part("runner");
            let tool = children(runner);
            let second = rig.second("run/helper.sock", &[]);
            second.wait_for(" waiting ");
            match victim {
                "supervisor" => send_signal(rig.pid(), signal),
                part => send_signal(rig.part(part), signal),
            }
            second.wait_for(" supervisor ready ");
            // The fault point holds the child that would become the tool, and nothing else would
            // end that child.
            for pid in tool.into_iter().chain([runner]) {
                try_signal(pid, Signal::KILL);
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
            check_filesystem(fs_type, &attached.path());
            rig.ended();
        }
    }
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

/// N15: four connections of agents stage, publish, unpublish and unstage one volume at once.
#[test]
fn concurrent_agents_on_same_volume_leave_no_mounts() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let round = |client: &mut Client, pod: &str| {
        for operation in [
            rig.stage_operation(&volume, FsType::Ext4),
            rig.publish_operation(&volume, pod),
            rig.unpublish_operation(&volume, &target(&volume, pod)),
            rig.unstage_operation(&volume, &staging(&volume)),
        ] {
            let outcome = client.call(operation, LONG);
            assert!(is_an_answer(&outcome), "{outcome:?}");
        }
    };
    std::thread::scope(|scope| {
        // Two threads use a pod each, and two compete for one pod.
        for pod in ["one", "two", "both", "both"] {
            let round = &round;
            let rig = &rig;
            scope.spawn(move || {
                let mut client = rig.client();
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
    let held = rig.inventory();
    assert!(held.volumes.is_empty() && held.operations.is_empty());
    assert_refused(rig.publish(&volume, "one"), Refusal::NotStaged);
    check_filesystem(FsType::Ext4, &attached.path());
    assert_eq!(rig.journal().matches("tool=mke2fs").count(), 1);
}
