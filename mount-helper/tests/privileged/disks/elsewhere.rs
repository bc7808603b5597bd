//! File systems that were made elsewhere: which settings refuse, check or trust them, and the
//! options of their mounts.
use crate::rig::{
    Attached, Rig, able, assert_refused, done, refused, shell, staged, staging, target, volume,
};
use ebs_csi_wire::{
    FsType, MountFlag, Operation, Origin, Outcome, Refusal, Source, Stage, VolumeId,
};
use std::fs;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;

/// Attaches a disk with a file system that a person made, and with a file in it.
fn made_by_hand(rig: &Rig, fs: FsType) -> (VolumeId, Attached) {
    let (volume, attached) = rig.new_disk(512 * MIB);
    match fs {
        FsType::Xfs => shell("mkfs.xfs", &["-q", &attached.path()]),
        _ => shell("mke2fs", &["-q", "-F", "-t", fs.as_str(), &attached.path()]),
    };
    (volume, attached)
}

/// Returns the request for a copy of a volume that does not belong to this cluster.
fn foreign(rig: &Rig, volume: &VolumeId, fs: FsType) -> Stage {
    let mut asked = rig.staging(volume, fs);
    asked.disk.origin = Origin::Copy;
    asked
}

/// Returns the request for a volume of unknown origin.
fn untold(rig: &Rig, volume: &VolumeId, fs: FsType) -> Stage {
    let mut asked = rig.staging(volume, fs);
    asked.disk.origin = Origin::Unknown;
    asked
}

fn stage_foreign(rig: &Rig, volume: &VolumeId, fs: FsType) -> Outcome {
    rig.ask(Operation::Stage(foreign(rig, volume, fs)))
}

fn write_at(attached: &Attached, at: u64, bytes: &[u8]) {
    let device = fs::File::options().write(true).open(attached.path()).expect("device");
    device.write_all_at(bytes, at).expect("write");
    device.sync_all().expect("sync");
}

/// Damages the file system in a way that its superblock does not show.
fn damage(attached: &Attached, fs: FsType) {
    match fs {
        // Removes the root directory.
        FsType::Ext3 | FsType::Ext4 => {
            shell("debugfs", &["-w", "-R", "clri <2>", &attached.path()]);
        }
        // Makes the checksum of the first inode wrong.
        FsType::Xfs => {
            let dump = shell("xfs_db", &["-r", "-c", "convert ino 128 daddr", &attached.path()]);
            let sector: u64 = dump
                .split(['(', ')'])
                .nth(1)
                .and_then(|n| n.parse().ok())
                .unwrap_or_else(|| panic!("{dump}"));
            write_at(attached, sector * 512 + 160, &[0x5a; 8]);
        }
    }
}

/// A raw publish, a new attachment and a restart of the helper each cause another check.
#[test]
fn foreign_filesystem_is_checked_once_per_attachment() {
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        let Some(mut rig) = Rig::start() else { return };
        let (volume, attached) = made_by_hand(&rig, fs);
        let first = staged(stage_foreign(&rig, &volume, fs));
        assert!(first.checked && !first.formatted, "{fs}: {first:?}");
        done(rig.unstage(&volume));
        let again = staged(stage_foreign(&rig, &volume, fs));
        assert!(!again.checked, "{fs}: {again:?}");
        done(rig.unstage(&volume));
        // A container that had the raw disk may have written anything.
        done(rig.publish_block(&volume, "p"));
        done(rig.unpublish(&volume, &crate::rig::block_target(&volume, "p")));
        assert!(staged(stage_foreign(&rig, &volume, fs)).checked, "{fs}");
        done(rig.unstage(&volume));
        let image = attached.image.clone();
        drop(attached);
        let attached = rig.attach_image(image);
        assert!(staged(stage_foreign(&rig, &volume, fs)).checked, "{fs}");
        done(rig.unstage(&volume));
        // A new helper does not know that the file system was checked.
        rig.stop();
        rig.run(&[]);
        assert!(staged(stage_foreign(&rig, &volume, fs)).checked, "{fs}");
        done(rig.unstage(&volume));
        drop(attached);
    }
}

/// The answer and the journal report the untold origin. A copy of an own volume and a blank origin
/// are not reported.
#[test]
fn filesystem_of_untold_origin_is_mounted_unchecked() {
    let Some(mut rig) = Rig::start() else { return };
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        let (volume, _attached) = made_by_hand(&rig, fs);
        for (origin, source, untold) in [
            (Origin::Unknown, Source::Elsewhere, true),
            (Origin::Copy, Source::Untold, true),
            (Origin::Copy, Source::Own, false),
            (Origin::Blank, Source::Elsewhere, false),
        ] {
            let mut asked = rig.staging(&volume, fs);
            asked.disk.origin = origin;
            asked.disk.source = source;
            let result = staged(rig.ask(Operation::Stage(asked)));
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
        let (volume, attached) = made_by_hand(&rig, fs);
        damage(&attached, fs);
        for read_only in [false, true] {
            let mut asked = foreign(&rig, &volume, fs);
            asked.read_only = read_only;
            // To a reader that may not replay the log, an unreplayed log looks like damage.
            let expected = match (fs, read_only) {
                (FsType::Xfs, true) => Refusal::UntrustedImage,
                _ => Refusal::FilesystemErrors,
            };
            assert_eq!(refused(rig.ask(Operation::Stage(asked))), expected, "{fs}");
        }
        assert_eq!(rig.mounts(&attached), 0, "{fs}");
        // The same disk with origin blank, which means that only this volume's own mounts wrote to
        // it.
        let mut ours = rig.staging(&volume, fs);
        ours.disk.origin = Origin::Blank;
        let told = rig.ask(Operation::Stage(ours));
        assert!(!matches!(&told, Outcome::Staged(staged) if staged.checked), "{fs}: {told:?}");
        rig.unstage(&volume);
    }
}

/// A read-only stage cannot replay the log, so the helper refuses the stage until a writable stage
/// has checked the disk.
#[test]
fn foreign_xfs_log_is_replayed_before_check() {
    let Some(rig) = Rig::start() else { return };
    let (origin, attached) = made_by_hand(&rig, FsType::Xfs);
    staged(rig.stage(&origin, FsType::Xfs));
    let root = rig.inside(&rig.kubelet(&staging(&origin)));
    for n in 0..200 {
        fs::write(root.join(format!("file-{n}")), "kept").expect("write");
    }
    rustix::fs::syncfs(fs::File::open(&root).expect("open")).expect("sync");
    let copy = volume();
    let image = rig.path("volumes").join(format!("{copy}.img"));
    shell(
        "cp",
        &[
            "--sparse=always",
            attached.image.to_str().expect("utf-8"),
            image.to_str().expect("utf-8"),
        ],
    );
    let second = rig.attach_image(image);
    let mut asked = rig.staging(&copy, FsType::Xfs);
    asked.disk.origin = Origin::Copy;
    // A read-only stage may not write, so the log cannot be replayed and its content cannot be
    // judged.
    asked.read_only = true;
    assert_refused(rig.ask(Operation::Stage(asked.clone())), Refusal::UntrustedImage);
    asked.read_only = false;
    let result = staged(rig.ask(Operation::Stage(asked.clone())));
    assert!(result.checked, "{result:?}");
    assert_eq!(rig.journal().matches("tool tool=xfs-repair").count(), 3);
    let found = rig.inside(&rig.kubelet(&staging(&copy))).join("file-199");
    assert_eq!(fs::read_to_string(found).expect("read"), "kept");
    assert_eq!(rig.mounts(&second), 1);
    done(rig.unstage(&copy));
    asked.read_only = true;
    staged(rig.ask(Operation::Stage(asked)));
    done(rig.unstage(&copy));
    done(rig.unstage(&origin));
}

#[test]
fn untrusted_images_deny_refuses_and_allow_skips_check() {
    if !able() {
        return;
    }
    for fs in [FsType::Ext4, FsType::Xfs] {
        let rig = Rig::start_with(&["--untrusted-images", "deny"]);
        let (volume, attached) = made_by_hand(&rig, fs);
        for outcome in [
            stage_foreign(&rig, &volume, fs),
            // The origin of this file system is unknown.
            rig.ask(Operation::Stage(untold(&rig, &volume, fs))),
        ] {
            assert_refused(outcome, Refusal::UntrustedImage);
        }
        assert_eq!(rig.mounts(&attached), 0);
        // File systems of this cluster's own volumes are not affected.
        let own = crate::rig::volume();
        let _own = rig.attach(&own, 512 * MIB);
        staged(rig.stage(&own, fs));
        done(rig.unstage(&own));
        staged(rig.stage(&own, fs));
        done(rig.unstage(&own));
        let rig = Rig::start_with(&["--untrusted-images=allow"]);
        let (volume, _attached) = made_by_hand(&rig, fs);
        let result = staged(stage_foreign(&rig, &volume, fs));
        assert!(!result.checked && !result.untold, "{result:?}");
        done(rig.unstage(&volume));
    }
}

fn options(rig: &Rig, path: &str) -> String {
    let path = rig.kubelet(path).to_string();
    rig.mountinfo()
        .lines()
        .find(|line| line.split(' ').nth(4) == Some(path.as_str()))
        .expect("a mount")
        .to_owned()
}

/// The values off, untrusted and on restrict no volume, foreign volumes or all volumes. The mount
/// flags suid and dev change nothing.
#[test]
fn nodev_nosuid_switch_sets_mount_options_by_origin() {
    if !able() {
        return;
    }
    for (switch, ours_restricted, theirs_restricted) in
        [("off", false, false), ("untrusted", false, true), ("on", true, true)]
    {
        let rig = Rig::start_with(&["--nodev-nosuid", switch]);
        let (theirs, _attached) = made_by_hand(&rig, FsType::Ext4);
        let ours = volume();
        let _own = rig.attach(&ours, 64 * MIB);
        for (volume, restricted) in [(&ours, ours_restricted), (&theirs, theirs_restricted)] {
            // The mount flags of a StorageClass do not lift the restriction.
            let flags = MountFlag::parse_all("suid,dev").expect("flags");
            let mut asked = if *volume == ours {
                rig.staging(volume, FsType::Ext4)
            } else {
                untold(&rig, volume, FsType::Ext4)
            };
            asked.flags.clone_from(&flags);
            staged(rig.ask(Operation::Stage(asked)));
            let mut publish = rig.publishing(volume, "p");
            publish.flags = flags;
            done(rig.ask(Operation::PublishFilesystem(publish)));
            for path in [staging(volume), target(volume, "p")] {
                let line = options(&rig, &path);
                for word in ["nosuid", "nodev"] {
                    assert_eq!(line.contains(word), restricted, "{switch}: {line}");
                }
            }
            done(rig.unpublish(volume, &target(volume, "p")));
            done(rig.unstage(volume));
        }
    }
}

#[test]
fn errors_panic_in_superblock_mounts_with_remount_ro() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = made_by_hand(&rig, FsType::Ext4);
    shell("tune2fs", &["-e", "panic", &attached.path()]);
    staged(rig.stage(&volume, FsType::Ext4));
    let line = options(&rig, &staging(&volume));
    assert!(line.contains("errors=remount-ro") && !line.contains("errors=panic"), "{line}");
    done(rig.unstage(&volume));
}
