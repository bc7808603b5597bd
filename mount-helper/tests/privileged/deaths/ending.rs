//! The end of the helper as kubelet causes it: SIGTERM, a grace period, and SIGKILL.
use crate::rig::{Rig, assert_refused, done, send_signal, target};
use ebs_csi_wire::{FsType, Outcome, Refusal};
use rustix::process::Signal;
use std::time::Duration;

fn terminate(rig: &Rig) {
    send_signal(rig.pid(), Signal::TERM);
    rig.wait_for(" broker stopping");
}

#[test]
fn a_connected_agent_may_unmount_after_sigterm() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = rig.staged_disk(64 << 20, FsType::Ext4);
    for pod in ["one", "two"] {
        done(rig.publish(&volume, pod));
    }
    let mut agent = rig.client();
    terminate(&rig);
    let unpublish = rig.unpublish_operation(&volume, &target(&volume, "one"));
    done(agent.call(unpublish, Duration::from_secs(30)));
    // Another connection is served, too.
    done(rig.unpublish(&volume, &target(&volume, "two")));
    // No operation begins that may take longer than the remaining time.
    assert_refused(rig.stage(&crate::rig::volume(), FsType::Ext4), Refusal::Busy);
    done(rig.unstage(&volume));
    assert_eq!(rig.mounts(&attached), 0);
    drop(agent);
    assert_eq!(rig.ended(), Some(0));
    assert!(rig.journal().contains("stopped finished=yes"));
}

#[test]
fn helper_stops_after_grace_despite_connected_agent() {
    let Some(mut rig) = Rig::start_with(&["--grace", "1"]) else { return };
    let mut agent = rig.client();
    terminate(&rig);
    assert_eq!(rig.ended(), Some(0));
    assert_eq!(agent.receive(), None::<Outcome>);
}
