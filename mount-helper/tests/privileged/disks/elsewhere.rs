//! File systems that were made elsewhere: which settings refuse, check or trust them, and the
//! options of their mounts.
use super::replay::damage_inode;
use crate::rig::{
    Attached, MIB, Rig, assert_refused, disk, done, reason, shell, staged, staging, target,
};
use ebs_csi_wire::{Disk, FsType, MountFlag, Origin, Outcome, Refusal, Source};
use std::fs;

/// Damages the file system in a way that its superblock does not show.
fn damage(attached: &Attached, fs: FsType) {
    match fs {
        // Removes the root directory.
        FsType::Ext3 | FsType::Ext4 => {
            shell("debugfs", &["-w", "-R", "clri <2>", &attached.path()]);
        }
        FsType::Xfs => damage_inode(attached, "128"),
    }
}

#[test]
fn foreign_filesystem_is_checked_once_per_attachment() {
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        let Some(mut rig) = Rig::start() else { return };
        let (volume, attached) = rig.made_disk(512 * MIB, fs);
        let is_checked = |rig: &Rig| {
            let result = staged(rig.stage_copy(&volume, fs));
            assert!(!result.formatted, "{fs}: {result:?}");
            done(rig.unstage(&volume));
            result.checked
        };
        assert!(is_checked(&rig), "{fs}");
        assert!(!is_checked(&rig), "{fs}");
        // A container that had the raw disk may have written anything.
        done(rig.publish_block(&volume, "p"));
        done(rig.unpublish_block(&volume, "p"));
        assert!(is_checked(&rig), "{fs}");
        let attached = rig.reattach(attached);
        assert!(is_checked(&rig), "{fs}");
        // A new helper does not know that the file system was checked.
        rig.restart(&[]);
        assert!(is_checked(&rig), "{fs}");
        drop(attached);
    }
}

#[test]
fn filesystem_of_untold_origin_is_mounted_unchecked() {
    let Some(mut rig) = Rig::start() else { return };
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        let (volume, _attached) = rig.made_disk(512 * MIB, fs);
        for (origin, source, untold) in [
            (Origin::Unknown, Source::Elsewhere, true),
            (Origin::Copy, Source::Untold, true),
            (Origin::Copy, Source::Own, false),
            (Origin::Blank, Source::Elsewhere, false),
        ] {
            let result = staged(rig.stage_with(&volume, fs, |request| {
                request.disk = Disk { origin, source, ..disk(&volume) };
            }));
            assert!(!result.checked && !result.formatted, "{fs}: {result:?}");
            assert_eq!(result.untold, untold, "{fs} {origin} {source}");
            done(rig.unstage(&volume));
        }
    }
    rig.stop();
    assert_eq!(rig.journal().matches("origin-untold").count(), 6);
}

#[test]
fn damaged_foreign_filesystem_with_sound_superblock_is_refused() {
    let Some(rig) = Rig::start() else { return };
    for fs in [FsType::Ext4, FsType::Xfs] {
        let (volume, attached) = rig.made_disk(512 * MIB, fs);
        damage(&attached, fs);
        for read_only in [false, true] {
            let outcome = rig.stage_with(&volume, fs, |request| {
                (request.disk.origin, request.read_only) = (Origin::Copy, read_only);
            });
            assert_eq!(reason(outcome), Refusal::FilesystemErrors, "{fs}");
        }
        assert_eq!(rig.mounts(&attached), 0, "{fs}");
        // The same disk with origin blank, which means that only this volume's own mounts wrote to
        // it.
        let own = rig.stage(&volume, fs);
        assert!(!matches!(&own, Outcome::Staged(staged) if staged.checked), "{fs}: {own:?}");
        rig.unstage(&volume);
    }
}

#[test]
fn foreign_xfs_log_is_replayed_before_check() {
    for read_only in [false, true] {
        let Some(rig) = Rig::start() else { return };
        let (origin, attached) = rig.made_disk(512 * MIB, FsType::Xfs);
        staged(rig.stage(&origin, FsType::Xfs));
        let root = rig.staged_root(&origin);
        for n in 0..200 {
            fs::write(root.join(format!("file-{n}")), "kept").expect("write");
        }
        rustix::fs::syncfs(fs::File::open(&root).expect("open")).expect("sync");
        let (copy, second) = rig.attach_copy(&attached.image);
        let result = staged(rig.stage_with(&copy, FsType::Xfs, |request| {
            (request.disk.origin, request.read_only) = (Origin::Copy, read_only);
        }));
        assert!(result.checked, "{result:?}");
        assert_eq!(rig.journal().matches("tool tool=xfs-repair ").count(), 2);
        assert_eq!(rig.staged_file(&copy, "file-199"), "kept");
        assert_eq!(rig.mounts(&second), 1);
        done(rig.unstage(&copy));
        done(rig.unstage(&origin));
    }
}

#[test]
fn untrusted_images_deny_refuses_and_allow_skips_check() {
    for fs in [FsType::Ext4, FsType::Xfs] {
        let Some(rig) = Rig::start_with(&["--untrusted-images", "deny"]) else { return };
        let (volume, attached) = rig.made_disk(512 * MIB, fs);
        for origin in [Origin::Copy, Origin::Unknown] {
            let outcome = rig.stage_with(&volume, fs, |request| request.disk.origin = origin);
            assert_refused(outcome, Refusal::UntrustedImage);
        }
        assert_eq!(rig.mounts(&attached), 0);
        // File systems of this cluster's own volumes are not affected.
        let (own, _own) = rig.new_disk(512 * MIB);
        for _ in 0..2 {
            rig.stage_once(&own, fs);
        }
        let Some(rig) = Rig::start_with(&["--untrusted-images=allow"]) else { return };
        let (volume, _attached) = rig.made_disk(512 * MIB, fs);
        let result = staged(rig.stage_copy(&volume, fs));
        assert!(!result.checked && !result.untold, "{result:?}");
        done(rig.unstage(&volume));
    }
}

#[test]
fn nodev_nosuid_switch_sets_mount_options_by_origin() {
    for (switch, ours_restricted, theirs_restricted) in
        [("off", false, false), ("untrusted", false, true), ("on", true, true)]
    {
        let Some(rig) = Rig::start_with(&["--nodev-nosuid", switch]) else { return };
        let (theirs, _attached) = rig.made_disk(512 * MIB, FsType::Ext4);
        let (ours, _own) = rig.new_disk(64 * MIB);
        for (volume, restricted) in [(&ours, ours_restricted), (&theirs, theirs_restricted)] {
            // The mount flags of a StorageClass do not lift the restriction.
            let flags = MountFlag::parse_all("suid,dev").expect("flags");
            let origin = if *volume == ours { Origin::Blank } else { Origin::Unknown };
            staged(rig.stage_with(volume, FsType::Ext4, |request| {
                (request.disk.origin, request.flags) = (origin, flags.clone());
            }));
            done(rig.publish_with(volume, "p", |request| request.flags = flags));
            for path in [staging(volume), target(volume, "p")] {
                let line = rig.mount_at(&path);
                for word in ["nosuid", "nodev"] {
                    assert_eq!(line.contains(word), restricted, "{switch}: {line}");
                }
            }
            rig.withdraw(volume, "p");
        }
    }
}
