//! What a disk may hold, and what a tool may need to look at it.
use super::row;
use crate::rig::{Rig, able, done, shell, staged, volume};
use ebs_csi_wire::{FsType, Operation, Origin};

const GIB: u64 = 1 << 30;

/// Restores of volumes that were grown or have stripes.
#[test]
fn an_xfs_of_any_number_of_groups_is_checked() {
    if !able() {
        return;
    }
    let rig = Rig::start();
    for groups in [31, 32, 64, 65, 2000_u64] {
        let volume = volume();
        let attached = rig.attach(&volume, groups.max(48) * GIB / 8);
        let asked_for = format!("agcount={groups}");
        shell("mkfs.xfs", &["-q", "-d", &asked_for, &attached.path()]);
        let mut asked = rig.staging(&volume, FsType::Xfs);
        asked.disk.origin = Origin::Copy;
        let result = staged(rig.ask(Operation::Stage(asked)));
        assert!(result.checked, "{groups} groups: {result:?}");
        done(rig.unstage(&volume));
    }
    row(
        "F2",
        "an XFS of 31, 32, 64, 65 and 2000 groups that was made elsewhere is staged",
        "the checker ends and finds it sound",
    );
}
