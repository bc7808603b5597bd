//! Copies of file systems that were in use: everything that was synced must show, also to a request
//! that is read-only.
use crate::rig::{
    Attached, MIB, Rig, assert_refused, check_filesystem, done, reason, shell, staged, staging,
    text, write_synced,
};
use ebs_csi_wire::{FsType, MountFlag, Origin, Outcome, Refusal, Stage, VolumeId};
use std::fs;

/// More than the area for fast commits has blocks.
const FILES: usize = 200;

/// Stages a volume, writes files one after the other, each synced, and attaches a copy of the disk
/// as it is then.
fn copy_in_use(
    rig: &Rig,
    fs: FsType,
    (origin, disk): (VolumeId, Attached),
) -> (VolumeId, Attached) {
    staged(rig.stage(&origin, fs));
    let root = rig.staged_root(&origin);
    rig.open_in_container(&staging(&origin));
    for n in 0..FILES {
        write_synced(&root.join(format!("file-{n}")), &format!("kept {n}"));
    }
    let copy = rig.attach_copy(&disk.image);
    done(rig.unstage(&origin));
    copy
}

fn files_shown(rig: &Rig, volume: &VolumeId) -> usize {
    let root = rig.staged_root(volume);
    let is_kept = |n: &usize| {
        fs::read_to_string(root.join(format!("file-{n}")))
            .is_ok_and(|text| text == format!("kept {n}"))
    };
    (0..FILES).filter(is_kept).count()
}

type Change = fn(&mut Stage);

fn by_field(request: &mut Stage) {
    request.read_only = true;
}

fn by_flag(request: &mut Stage) {
    request.flags = MountFlag::parse_all("ro").expect("flags");
}

#[test]
fn read_only_stage_shows_all_synced_files() {
    let Some(rig) = Rig::start() else { return };
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        let rows: [(Origin, Change); 4] = [
            (Origin::Blank, by_flag),
            (Origin::Blank, by_field),
            (Origin::Unknown, by_flag),
            (Origin::Copy, by_field),
        ];
        for (origin, read_only) in rows {
            let what = format!("{fs} {origin}");
            let (copy, second) = copy_in_use(&rig, fs, rig.made_disk(512 * MIB, fs));
            let stage = |change: Change| {
                staged(rig.stage_with(&copy, fs, |request| {
                    request.disk.origin = origin;
                    change(request);
                }))
            };
            let result = stage(read_only);
            assert_eq!(files_shown(&rig, &copy), FILES, "{what}");
            // Whether the log of XFS is empty, only the kernel and the checker know.
            assert_eq!(result.replayed, fs != FsType::Xfs, "{what}: {result:?}");
            assert!(!result.repaired && !result.formatted, "{what}: {result:?}");
            let root = rig.staged_root(&copy);
            assert!(fs::write(root.join("new"), "x").is_err(), "{what}");
            assert!(rig.mount_at(&staging(&copy)).contains(" ro,"), "{what}");
            done(rig.unstage(&copy));
            check_filesystem(fs, &second.path());
            // Nothing is left to do for the next stage, whatever it asks for.
            for change in [read_only, |_: &mut Stage| ()] {
                assert!(!stage(change).replayed, "{what}");
                assert_eq!(files_shown(&rig, &copy), FILES, "{what}");
                done(rig.unstage(&copy));
            }
        }
    }
}

/// Old data is not shown instead.
#[test]
fn unreplayed_journal_on_read_only_disk_is_refused() {
    let Some(rig) = Rig::start() else { return };
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        for origin in [Origin::Blank, Origin::Copy] {
            let (copy, second) = copy_in_use(&rig, fs, rig.made_disk(512 * MIB, fs));
            let stage = || {
                rig.stage_with(&copy, fs, |request| {
                    (request.disk.origin, request.read_only) = (origin, true);
                })
            };
            let before = fs::read(&second.image).expect("image");
            shell("blockdev", &["--setro", &second.path()]);
            assert_refused(stage(), Refusal::DeviceReadOnly);
            assert_eq!(rig.mounts(&second), 0, "{fs} {origin}");
            assert!(fs::read(&second.image).expect("image") == before, "{fs} {origin}");
            shell("blockdev", &["--setrw", &second.path()]);
            staged(stage());
            assert_eq!(files_shown(&rig, &copy), FILES, "{fs} {origin}");
            done(rig.unstage(&copy));
            // Without anything to replay, the disk need not be writable.
            shell("blockdev", &["--setro", &second.path()]);
            staged(stage());
            assert_eq!(files_shown(&rig, &copy), FILES, "{fs} {origin}");
            done(rig.unstage(&copy));
        }
    }
}

/// `e2fsck` of e2fsprogs 1.47 loses the files of such a journal, or ends with status 12.
#[test]
fn fast_commits_are_replayed_before_check() {
    let Some(rig) = Rig::start() else { return };
    for area in ["size=8", "size=8,fast_commit_size=128", TINY] {
        for (origin, read_only) in [
            (Origin::Blank, false),
            (Origin::Blank, true),
            (Origin::Copy, false),
            (Origin::Copy, true),
        ] {
            let what = format!("{area} {origin} read-only: {read_only}");
            let (volume, attached) = rig.new_disk(256 * MIB);
            let options = ["-t", "ext4", "-b", "4096", "-O", "fast_commit", "-J", area];
            shell("mke2fs", &[&["-q", "-F"], &options[..], &[&attached.path()]].concat());
            let (copy, second) = copy_in_use(&rig, FsType::Ext4, (volume, attached));
            let before = fs::read(&second.image).expect("image");
            let outcome = rig.stage_with(&copy, FsType::Ext4, |request| {
                (request.disk.origin, request.read_only) = (origin, read_only);
            });
            if area == TINY && matches!(outcome, Outcome::Refused(_)) {
                assert_refused(outcome, Refusal::FilesystemErrors);
                assert!(fs::read(&second.image).expect("image") == before, "{what}");
                continue;
            }
            let result = staged(outcome);
            // The kernel's own replay may leave something to repair.
            assert!(result.checked && result.replayed, "{what}: {result:?}");
            assert_eq!(files_shown(&rig, &copy), FILES, "{what}");
            done(rig.unstage(&copy));
            check_filesystem(FsType::Ext4, &second.path());
        }
    }
}

/// The kernel of some releases cannot read back what it wrote to so small an area.
const TINY: &str = "size=8,fast_commit_size=64";

/// Makes the checksum of an inode of an XFS wrong. The first inode is 128.
pub(super) fn damage_inode(attached: &Attached, inode: &str) {
    let convert = format!("convert ino {inode} daddr");
    let dump = shell("xfs_db", &["-r", "-c", &convert, &attached.path()]);
    let sector = dump.split(['(', ')']).nth(1).and_then(|n| n.parse().ok());
    let sector: u64 = sector.unwrap_or_else(|| panic!("{dump}"));
    attached.write(sector * 512 + 160, &[0x5a; 8]);
}

/// A mount would write to the disk, read-only or not.
#[test]
fn damaged_xfs_with_empty_log_is_never_mounted() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.made_disk(512 * MIB, FsType::Xfs);
    staged(rig.stage(&volume, FsType::Xfs));
    write_synced(&rig.staged_root(&volume).join("file"), "kept");
    done(rig.unstage(&volume));
    damage_inode(&attached, "128");
    let before = fs::read(&attached.image).expect("image");
    for read_only in [false, true] {
        let outcome = rig.stage_with(&volume, FsType::Xfs, |request| {
            (request.disk.origin, request.read_only) = (Origin::Copy, read_only);
        });
        assert_eq!(reason(outcome), Refusal::FilesystemErrors);
        assert_eq!(rig.mounts(&attached), 0);
        assert!(fs::read(&attached.image).expect("image") == before, "read-only: {read_only}");
    }
}

#[test]
fn damaged_xfs_is_refused_after_log_replay() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.made_disk(512 * MIB, FsType::Xfs);
    staged(rig.stage(&volume, FsType::Xfs));
    let root = rig.staged_root(&volume);
    write_synced(&root.join("damaged"), "kept");
    let inode = shell("stat", &["--format=%i", text(&root.join("damaged"))]);
    done(rig.unstage(&volume));
    let (copy, second) = copy_in_use(&rig, FsType::Xfs, (volume, attached));
    damage_inode(&second, &inode);
    assert_refused(rig.stage_copy(&copy, FsType::Xfs), Refusal::FilesystemErrors);
    assert!(rig.journal().contains("tool=xfs-repair-log end=Exited(2)"));
    assert_eq!(rig.mounts(&second), 0);
}
