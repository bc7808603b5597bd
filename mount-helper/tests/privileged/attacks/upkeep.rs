//! Volumes in the states in which applications leave them: growth, checks, read-only disks, mount
//! options.
mod growth;
mod read_only;
mod superblocks;

use crate::rig::{MIB, Rig, done, set_mode, staged};
use ebs_csi_wire::FsType;
use std::fs;
use std::os::unix::fs::chown;

/// N1: The root directory has mode 0700 or 0000 and belongs to root or to the application.
#[test]
fn volume_with_private_root_restages_and_grows() {
    let Some(rig) = Rig::start() else { return };
    for fs_type in [FsType::Xfs, FsType::Ext4, FsType::Ext3] {
        for (owner, mode) in [(0, 0o700), (0, 0o000), (1234, 0o700), (1234, 0o000)] {
            let (volume, attached) = rig.staged_disk(320 * MIB, fs_type);
            let root = rig.staged_root(&volume);
            fs::write(root.join("kept"), "by its application").expect("write");
            chown(&root, Some(owner), Some(owner)).expect("chown");
            set_mode(&root, mode);
            for larger in [false, true] {
                done(rig.unstage(&volume));
                if larger {
                    attached.resize(512 * MIB);
                }
                let again = staged(rig.stage(&volume, fs_type));
                assert_eq!(
                    (again.formatted, again.grown),
                    (false, larger),
                    "{fs_type} {owner} {mode:o}"
                );
                assert!(staged(rig.stage(&volume, fs_type)).already);
            }
            let kept = fs::read_to_string(root.join("kept")).expect("read");
            assert_eq!(kept, "by its application");
            done(rig.unstage(&volume));
        }
    }
}
