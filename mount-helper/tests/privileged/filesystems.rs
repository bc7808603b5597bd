//! File systems that are not clean, that are copies of each other or that are read-only, and mount
//! flags that must take effect.
use crate::rig::{
    Attached, MIB, Rig, assert_refused, done, format_options, refusal, shell, staged, staging,
    target, text, usage, wait_until, write_synced,
};
use ebs_csi_policy::format_option::ROWS;
use ebs_csi_wire::{
    ContentState, FsType, MountFlag, Observation, Outcome, Refusal, Refused, Signature, VolumeId,
};
use std::fs;

fn in_use(rig: &Rig, fs_type: FsType) -> (VolumeId, Attached) {
    let (volume, attached) = rig.staged_disk(512 * MIB, fs_type);
    write_synced(&rig.staged_root(&volume).join("kept"), "fsynced");
    (volume, attached)
}

#[test]
fn unclean_ext4_is_checked_and_keeps_synced_data() {
    let Some(rig) = Rig::start() else { return };
    let (origin, attached) = in_use(&rig, FsType::Ext4);
    let (copy, _second) = rig.attach_copy(&attached.image);
    let result = staged(rig.stage(&copy, FsType::Ext4));
    assert!(result.checked && !result.formatted, "{result:?}");
    assert!(result.replayed && !result.repaired, "{result:?}");
    assert_eq!(rig.staged_file(&copy, "kept"), "fsynced");
    done(rig.unstage(&copy));
    let again = staged(rig.stage(&copy, FsType::Ext4));
    assert!(!again.checked, "{again:?}");
    done(rig.unstage(&copy));
    done(rig.unstage(&origin));
}

#[test]
fn xfs_copy_is_staged_beside_staged_origin() {
    let Some(rig) = Rig::start() else { return };
    let (origin, attached) = in_use(&rig, FsType::Xfs);
    let (copy, _second) = rig.attach_copy(&attached.image);
    let result = staged(rig.stage(&copy, FsType::Xfs));
    assert!(!result.formatted, "{result:?}");
    assert_eq!(rig.staged_file(&copy, "kept"), "fsynced");
    done(rig.unstage(&copy));
    done(rig.unstage(&origin));
}

#[test]
fn journal_replay_needs_1_full_check_no_repair() {
    for larger in [false, true] {
        let Some(mut rig) = Rig::start() else { return };
        let (origin, attached) = in_use(&rig, FsType::Ext4);
        let root = rig.staged_root(&origin);
        for n in 0..200 {
            fs::write(root.join(format!("file-{n}")), "kept").expect("write");
        }
        rustix::fs::syncfs(fs::File::open(&root).expect("open")).expect("sync");
        let (copy, second) = rig.attach_copy(&attached.image);
        if larger {
            second.resize(1024 * MIB);
        }
        let result = staged(rig.stage_copy(&copy, FsType::Ext4));
        assert!(result.checked && result.replayed && !result.repaired, "{result:?}");
        assert_eq!(result.grown, larger);
        done(rig.unstage(&copy));
        done(rig.unstage(&origin));
        rig.stop();
        let full = rig.journal().matches("tool tool=e2fsck-full").count();
        assert_eq!(full, 1, "larger: {larger}");
    }
}

fn damaged(signature: Signature) -> Refused {
    let state = ContentState::Damaged;
    Refused::because(Refusal::FilesystemErrors, Observation::Content { signature, state })
}

#[test]
fn ext4_needing_manual_repair_is_refused_not_mounted() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.formatted_disk(64 * MIB, FsType::Ext4);
    // The superblock notes errors, and the root directory is removed.
    for command in ["clri <2>", "ssv state 2"] {
        shell("debugfs", &["-w", "-R", command, &attached.path()]);
    }
    assert_eq!(refusal(rig.stage(&volume, FsType::Ext4)), damaged(Signature::Ext4));
    assert_eq!(rig.mounts(&attached), 0);
}

#[test]
fn a_damaged_xfs_is_refused_and_not_mounted() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.formatted_disk(512 * MIB, FsType::Xfs);
    // Changes a byte of the superblock, which the superblock's checksum shows.
    attached.write(40, &[0x55]);
    assert_eq!(refusal(rig.stage(&volume, FsType::Xfs)), damaged(Signature::Xfs));
    assert_eq!(rig.mounts(&attached), 0);
}

/// The image of an ext4 stays unchanged byte for byte, and a write in the pod fails. The kernel
/// ends each mount of XFS with a record in the log.
#[test]
fn read_only_stage_writes_nothing_refuses_writable_publish() {
    for fs_type in [FsType::Ext4, FsType::Xfs] {
        let Some(rig) = Rig::start() else { return };
        let (copy, second) = in_use(&rig, fs_type);
        done(rig.unstage(&copy));
        let before = fs::read(&second.image).expect("image");
        let stage = || staged(rig.stage_with(&copy, fs_type, |request| request.read_only = true));
        let result = stage();
        assert!(!result.checked && !result.repaired, "{result:?}");
        assert!(stage().already);
        // A volume that is staged read-only is not published writable.
        assert_refused(rig.publish(&copy, "p"), Refusal::MountedDifferently);
        let publish = || done(rig.publish_with(&copy, "p", |request| request.read_only = true));
        assert!(!publish());
        assert!(publish());
        let directory = rig.published_root(&copy, "p");
        let error = fs::write(directory.join("new"), "x").expect_err("read-only");
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        rig.withdraw(&copy, "p");
        let unchanged = fs::read(&second.image).expect("image") == before;
        assert!(unchanged || fs_type == FsType::Xfs, "{fs_type}");
    }
}

#[test]
fn read_only_and_writable_targets_of_volume_coexist() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = in_use(&rig, FsType::Ext4);
    done(rig.publish_with(&volume, "reader", |request| request.read_only = true));
    done(rig.publish(&volume, "writer"));
    let reader = rig.published_root(&volume, "reader");
    let writer = rig.published_root(&volume, "writer");
    fs::write(writer.join("new"), "x").expect("writable");
    assert_eq!(fs::read_to_string(reader.join("new")).expect("read"), "x");
    assert!(fs::write(reader.join("other"), "x").is_err());
    for pod in ["reader", "writer"] {
        done(rig.unpublish(&volume, &target(&volume, pod)));
    }
    done(rig.unstage(&volume));
}

#[test]
fn mount_flags_apply_only_to_requested_mount() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.new_disk(64 * MIB);
    let flags = |list: &str| MountFlag::parse_all(list).expect("flags");
    staged(rig.stage_with(&volume, FsType::Ext4, |request| {
        request.flags = flags("noatime,commit=17,defaults,_netdev")
    }));
    done(rig.publish_with(&volume, "p", |request| {
        request.flags = flags("noexec,nosuid,nodev,commit=17")
    }));
    let staged_line = rig.mount_at(&staging(&volume));
    assert!(staged_line.contains("noatime"), "{staged_line}");
    assert!(staged_line.contains("commit=17"), "{staged_line}");
    let target_line = rig.mount_at(&target(&volume, "p"));
    for flag in ["noexec", "nosuid", "nodev"] {
        assert!(target_line.contains(flag), "{target_line}");
        assert!(!staged_line.contains(flag), "{staged_line}");
    }
    assert_refused(
        rig.publish_with(&volume, "q", |request| request.flags = flags("remount")),
        Refusal::MountFlag,
    );
    rig.withdraw(&volume, "p");
}

/// The kernel accepts what the policy accepts, and the mount table shows what mount(8) shows.
/// `max_atomic_write` and `lifetime` are options of newer kernels.
#[test]
fn options_that_mount_8_accepts_are_accepted() {
    let Some(rig) = Rig::start() else { return };
    for (fs, options, shown) in [
        (FsType::Ext4, "barrier,init_itable,iversion,user,exec", "rw,nosuid,nodev,relatime"),
        (FsType::Ext4, "jqfmt=vfsv1,dax=never,mb_optimize_scan=1,norelatime", "rw,relatime"),
        (FsType::Ext4, "no_prefetch_block_bitmaps,dax=inode,comment=mine,x-a.b=1", "rw,relatime"),
        (FsType::Ext3, "users,noatime,norelatime", "rw,nosuid,nodev,noexec,noatime"),
        (FsType::Ext4, "ro,noload", "ro,relatime"),
        (FsType::Ext3, "ro,norecovery", "ro,relatime"),
        (FsType::Xfs, "iversion,dax=inode,owner,x-systemd.automount", "rw,nosuid,nodev,relatime"),
        (FsType::Xfs, "ro,norecovery,dax=never", "ro,relatime"),
    ] {
        let (volume, _attached) = rig.formatted_disk(512 * MIB, fs);
        let flags = MountFlag::parse_all(options).expect("flags");
        staged(rig.stage_with(&volume, fs, |request| request.flags.clone_from(&flags)));
        let line = rig.mount_at(&staging(&volume));
        assert_eq!(line.split(' ').nth(5), Some(shown), "{options}: {line}");
        let read_only = options.starts_with("ro");
        done(rig.publish_with(&volume, "p", |request| {
            (request.flags, request.read_only) = (flags, read_only);
        }));
        rig.withdraw(&volume, "p");
    }
}

/// Whoever asks for a mount without replay gets the file system as the snapshot has it.
#[test]
fn requested_mount_without_replay_changes_nothing() {
    let Some(rig) = Rig::start() else { return };
    for (fs, word) in [(FsType::Ext4, "noload"), (FsType::Xfs, "norecovery")] {
        let (origin, attached) = in_use(&rig, fs);
        let (copy, second) = rig.attach_copy(&attached.image);
        let before = fs::read(&second.image).expect("read");
        staged(rig.stage_with(&copy, fs, |request| {
            request.flags = MountFlag::parse_all(&format!("ro,{word}")).expect("flags");
        }));
        done(rig.unstage(&copy));
        assert!(before == fs::read(&second.image).expect("read"), "{fs}: changed");
        done(rig.unstage(&origin));
    }
}

/// Formats a new disk with these options, and returns what the file system's tool shows of it.
fn formatted_with(rig: &Rig, fs: FsType, given: &[(&str, u64)]) -> (VolumeId, String) {
    let (volume, attached) = rig.new_disk(512 * MIB);
    let options = format_options(given);
    staged(rig.stage_with(&volume, fs, |request| request.format = options));
    done(rig.unstage(&volume));
    let disk = attached.path();
    let shown = match fs {
        FsType::Xfs => shell("xfs_info", &[&disk]),
        FsType::Ext3 | FsType::Ext4 => shell("dumpe2fs", &["-h", &disk]),
    };
    (volume, shown)
}

fn has_line_with(shown: &str, words: &str) -> bool {
    let has = |line: &str, word| line.split_whitespace().any(|shown| shown == word);
    shown.lines().any(|line| words.split_whitespace().all(|word| has(line, word)))
}

#[test]
fn each_format_option_shows_in_the_file_system() {
    let Some(rig) = Rig::start() else { return };
    for fs in FsType::ALL.iter().copied() {
        for row in ROWS {
            let Some(support) = row.on(fs) else { continue };
            let required = row.requires.map(|switch| (switch, 1));
            let given: Vec<_> = required.into_iter().chain([(row.key, row.example)]).collect();
            let (_, shown) = formatted_with(&rig, fs, &given);
            println!("{fs}: {given:?}: {}", support.shown);
            assert!(has_line_with(&shown, support.shown), "{} in {shown}", support.shown);
        }
    }
}

#[test]
fn format_options_reach_the_file_system() {
    let Some(rig) = Rig::start() else { return };
    let given = [
        ("blockSize", 2048),
        ("inodeSize", 512),
        ("numberOfInodes", 4096),
        ("ext4BigAlloc", 1),
        ("ext4ClusterSize", 16384),
        ("ext4EncryptionSupport", 1),
        ("ext4Stride", 32),
        ("ext4StripeWidth", 96),
    ];
    let (volume, dump) = formatted_with(&rig, FsType::Ext4, &given);
    // The file system's identifier contains the volume's digits.
    let digits = &volume.as_str()[volume.as_str().len() - 12..];
    let identifier = dump.lines().find_map(|line| line.strip_prefix("Filesystem UUID:"));
    let identifier = identifier.expect("an identifier").trim();
    assert!(identifier.ends_with(digits), "{digits} in {identifier}");
    for words in [
        "Block size: 2048",
        "Inode size: 512",
        "Inode count: 4096",
        "Cluster size: 16384",
        "Reserved block count: 0",
        "Filesystem features: bigalloc encrypt",
        "RAID stride: 32",
        "RAID stripe width: 96",
        &format!("Directory Hash Seed: {identifier}"),
    ] {
        assert!(has_line_with(&dump, words), "{words} in {dump}");
    }
}

#[test]
fn made_ext_stops_at_errors_at_each_stage() {
    let Some(rig) = Rig::start() else { return };
    for fs_type in [FsType::Ext3, FsType::Ext4] {
        let (volume, attached) = rig.new_disk(64 * MIB);
        for _ in 0..2 {
            staged(rig.stage(&volume, fs_type));
            let options = attached.options_in_force();
            assert!(options.lines().any(|line| line == "errors=remount-ro"), "{options}");
            done(rig.unstage(&volume));
        }
    }
}

#[test]
fn kernel_filesystem_error_is_reported_in_stats() {
    let Some(rig) = Rig::start() else { return };
    for flags in ["errors=remount-ro", "errors=continue"] {
        let (volume, attached) = rig.new_disk(64 * MIB);
        staged(rig.stage_with(&volume, FsType::Ext4, |request| {
            request.flags = MountFlag::parse_all(flags).expect("flags")
        }));
        done(rig.publish(&volume, "p"));
        let places = [staging(&volume), target(&volume, "p")];
        for place in &places {
            let usage = usage(rig.stats(&volume, place));
            assert!(!usage.turned_read_only && !usage.shut_down && usage.errors == 0);
        }
        attached.provoke_error();
        // The kernel counts the error a moment later.
        let is_counted = || usage(rig.stats(&volume, &places[0])).errors > 0;
        wait_until(|| "no error is counted".to_owned(), is_counted);
        let stopped = flags == "errors=remount-ro";
        let shown = stopped && kernel_shows(&rig, &attached, &["ro", "emergency_ro"]);
        for place in &places {
            let usage = usage(rig.stats(&volume, place));
            assert_eq!(usage.turned_read_only, shown, "{flags}");
            // A stopped file system counts each attempt of the kernel's own to write, too.
            assert!(usage.errors == 1 || (stopped && usage.errors > 1), "{flags}: {usage:?}");
        }
        let root = rig.inside(&places[0]);
        assert_eq!(fs::write(root.join("late"), "").is_err(), stopped, "{flags}");
        rig.withdraw(&volume, "p");
        // The superblock records the error, so the next stage checks the file system and clears the
        // record.
        assert!(staged(rig.stage(&volume, FsType::Ext4)).checked);
        assert_eq!(usage(rig.stats(&volume, &staging(&volume))).errors, 0);
        done(rig.unstage(&volume));
    }
}

#[test]
fn shutdown_filesystem_is_reported_and_can_be_unstaged() {
    let Some(rig) = Rig::start() else { return };
    for fs_type in [FsType::Xfs, FsType::Ext4] {
        let (volume, attached) = in_use(&rig, fs_type);
        done(rig.publish(&volume, "p"));
        let place = rig.staged_root(&volume);
        let place = text(&place);
        shell("xfs_io", &["-x", "-c", "shutdown", place]);
        for path in [staging(&volume), target(&volume, "p")] {
            // ext4 of kernel 6.15 and newer reports the shutdown and still answers; XFS answers
            // with an error.
            match rig.stats(&volume, &path) {
                Outcome::Usage(usage) => {
                    let shown = kernel_shows(&rig, &attached, &["shutdown"]);
                    assert_eq!((fs_type, usage.shut_down), (FsType::Ext4, shown), "{usage:?}");
                }
                Outcome::Failed(failed) => {
                    assert_eq!(failed.errno.map(std::num::NonZeroI32::get), Some(5));
                }
                other => panic!("{fs_type}: {other:?}"),
            }
        }
        rig.withdraw(&volume, "p");
        assert_eq!(rig.mounts(&attached), 0);
        assert!(!staged(rig.stage(&volume, fs_type)).formatted);
        assert_eq!(rig.staged_file(&volume, "kept"), "fsynced");
        done(rig.unstage(&volume));
    }
}

/// Returns whether the mount table has one of these options for a disk's file system. ext4 of some
/// kernels before 6.15 accepts no more writes, and the table does not tell.
fn kernel_shows(rig: &Rig, attached: &Attached, options: &[&str]) -> bool {
    let mounts = rig.mounts_with(2, &attached.number());
    let of_superblock = mounts[0].rsplit(' ').next().expect("options");
    let shown = of_superblock.split(',').any(|option| options.contains(&option));
    println!("the kernel shows: {shown}: {of_superblock}");
    shown
}
