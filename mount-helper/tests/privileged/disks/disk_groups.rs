//! Owners of disks' device nodes: the group that owns disks has different numbers on different
//! machines, and some machines have no such group.
use crate::rig::{Attached, Rig, done, staged, status, volume};
use ebs_csi_audit::Process;
use ebs_csi_policy::{SANDBOX, profile};
use ebs_csi_wire::{Failed, FsType, Node, Outcome, Step, VolumeId};

fn attached(rig: &Rig, owner: (u32, u32)) -> (VolumeId, Attached) {
    let volume = volume();
    let disk = rig.attach(&volume, 64 << 20);
    rig.own(&disk, owner);
    (volume, disk)
}

/// Returns the deviations that the auditor finds in the opener's groups.
fn deviations(rig: &Rig) -> Vec<String> {
    let opener = Process::read(rig.part("opener")).expect("the opener");
    let found = opener.deviations(profile::OPENER, SANDBOX);
    let of_groups = found.iter().filter(|one| one.rule == "groups");
    of_groups.map(ToString::to_string).collect()
}

#[test]
fn opener_joins_group_owning_disk_device_nodes() {
    for (owner, groups) in [((6, 0o660), "6"), ((485, 0o660), "485"), ((0, 0o660), "0")] {
        let Some((rig, there)) = Rig::start_with_disk(owner) else { return };
        assert_eq!(status(rig.part("opener"), "Groups"), groups, "{owner:?}");
        assert_eq!(status(rig.part("broker"), "Groups"), "", "{owner:?}");
        let (volume, disk) = attached(&rig, owner);
        assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
        assert_eq!(deviations(&rig), Vec::<String>::new(), "{owner:?}");
        done(rig.unstage(&volume));
        assert!(!rig.journal().contains("closed-disks"), "{owner:?}");
        // The auditor reads the owners of the nodes itself.
        for one in [&there, &disk] {
            rig.own(one, (4242, 0o660));
        }
        assert_eq!(deviations(&rig).len(), 1, "{owner:?}");
    }
}

/// No group may open such nodes, so the opener runs as user 0. The opener has no capabilities, and
/// the broker is not root.
#[test]
fn opener_runs_as_root_for_0600_disk_nodes() {
    let Some((rig, _there)) = Rig::start_with_disk((0, 0o600)) else { return };
    let opener = rig.part("opener");
    assert_eq!(status(opener, "Groups"), "");
    assert_eq!(status(opener, "Uid").split('\t').next(), Some("0"));
    assert_eq!(status(opener, "CapPrm"), "0000000000000000");
    assert_ne!(status(rig.part("broker"), "Uid").split('\t').next(), Some("0"));
    let (volume, disk) = attached(&rig, (0, 0o600));
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
    assert!(!rig.journal().contains("closed-disks"));
    drop(disk);
}

/// Mode 0400 gives nobody write access. A later stage fails and reports the owner and the mode.
#[test]
fn inaccessible_disk_nodes_are_logged_at_helper_start() {
    let Some((rig, there)) = Rig::start_with_disk((0, 0o400)) else { return };
    rig.wait_for(&format!("closed-disks nodes=\"{} 0:0 0400\"", there.name));
    let (volume, disk) = attached(&rig, (0, 0o400));
    refused_by(&rig, &volume, 0, 0o400);
    drop(disk);
}

/// At its start the opener joins the group that owns the disks, so it cannot open a later disk of
/// another group.
#[test]
fn disk_with_unknown_group_fails_stage_naming_owner() {
    let Some((rig, _there)) = Rig::start_with_disk((6, 0o660)) else { return };
    let (volume, disk) = attached(&rig, (485, 0o660));
    refused_by(&rig, &volume, 485, 0o660);
    rig.wait_for("node=\"0:485 mode 0660\"");
    rig.own(&disk, (6, 0o660));
    rig.stage_once(&volume, FsType::Ext4);
}

#[track_caller]
fn refused_by(rig: &Rig, volume: &VolumeId, gid: u32, mode: u32) {
    match rig.stage(volume, FsType::Ext4) {
        Outcome::Failed(Failed { step: Step::FindDevice, node: Some(node), .. }) => {
            assert_eq!(node, Node { uid: 0, gid, mode })
        }
        other => panic!("{other:?}"),
    }
}
