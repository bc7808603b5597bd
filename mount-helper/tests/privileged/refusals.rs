//! Disks and places for which a request must be refused or fail, and must change nothing.
use crate::rig::{
    Attached, LONG, MIB, Repeated, Rig, assert_refused, claim, disk, done, refusal, shell, staged,
    staging, target, volume,
};
use ebs_csi_wire::{
    ContentState, FormatOption, FsType, MountFlag, Observation, Operation, Origin, Outcome,
    Refusal, Refused, Signature, Stage, Step, VolumeId,
};
use std::fs;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// Checks that the stage is refused for this reason and writes no byte.
fn refuses(rig: &Rig, attached: &Attached, request: Stage, reason: Refusal) -> Option<Observation> {
    let before = fs::read(&attached.image).expect("image");
    let refused = refusal(rig.call(Operation::Stage(request)));
    assert_eq!(refused.reason, reason, "{refused:?}");
    let after = fs::read(&attached.image).expect("image");
    assert!(after == before, "the disk was written to");
    assert_eq!(rig.mounts(attached), 0);
    refused.seen
}

fn sound(signature: Signature) -> Observation {
    Observation::Content { signature, state: ContentState::Sound }
}

#[test]
fn a_disk_that_holds_anything_is_never_formatted() {
    let Some(rig) = Rig::start() else { return };
    let gpt = b"EFI PART".as_slice();
    let mut mbr = [0_u8; 512];
    mbr[446 + 4] = 0x83;
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    let end = 64 * MIB;
    let unknown = |at| (Refusal::UnknownContent, Observation::UnknownBytes { at });
    let foreign = |signature| (Refusal::ForeignContent, sound(signature));
    let table = |signature| (Refusal::PartitionTable, sound(signature));
    for (what, at, bytes, (reason, seen)) in [
        ("mbr", 0, mbr.as_slice(), table(Signature::Mbr)),
        ("gpt", 512, gpt, table(Signature::Gpt)),
        ("backup gpt", end - 512, gpt, table(Signature::Gpt)),
        ("luks", 0, b"LUKS\xba\xbe".as_slice(), foreign(Signature::Luks)),
        ("lvm", 512, b"LABELONE", foreign(Signature::Lvm2)),
        ("swap", 4086, b"SWAPSPACE2", foreign(Signature::Swap)),
        ("btrfs", 0x1_0040, b"_BHRfS_M", foreign(Signature::Btrfs)),
        ("md 1.0", end - 8192, b"\xfc\x4e\x2b\xa9", foreign(Signature::Md)),
        ("one byte", 700_000, b"\x01", unknown(700_000)),
        ("a byte at the end", end - 1, b"\x01", unknown(end - 1)),
        ("an ext backup's magic", 8 * MIB + 1024 + 56, b"\x53\xef", unknown(8 * MIB + 1024 + 56)),
        ("a btrfs mirror", 64 * MIB - 70_000, b"x", unknown(64 * MIB - 70_000)),
    ] {
        let (volume, attached) = rig.new_disk(end);
        attached.write(at, bytes);
        for fs in [FsType::Ext4, FsType::Xfs] {
            println!("{what} {fs}");
            let found = refuses(&rig, &attached, rig.stage_request(&volume, fs), reason);
            assert_eq!(found.as_ref(), Some(&seen), "{what}");
        }
    }
    // Each tool ran on a file in memory, for the comparison.
    let count = |words| rig.journal().matches(words).count();
    assert_eq!(count(" tool "), count(" made-in-memory "));
}

/// The last option is of a newer node-agent.
#[test]
fn format_option_that_no_tool_takes_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    for (fs, number, value) in
        [(FsType::Ext4, 1, 4097), (FsType::Xfs, 5, 1), (FsType::Ext4, u32::MAX, 1)]
    {
        let format = vec![FormatOption { number, value }];
        let request = Stage { format, ..rig.stage_request(&volume, fs) };
        assert_eq!(refuses(&rig, &attached, request, Refusal::FormatOption), None);
    }
}

#[test]
fn a_disk_with_another_file_system_is_refused() {
    let Some(rig) = Rig::start() else { return };
    for (have, wanted) in
        [(FsType::Ext4, FsType::Xfs), (FsType::Xfs, FsType::Ext4), (FsType::Ext4, FsType::Ext3)]
    {
        let (volume, attached) = rig.formatted_disk(512 * MIB, have);
        let request = rig.stage_request(&volume, wanted);
        let found = refuses(&rig, &attached, request, Refusal::ForeignContent);
        assert_eq!(found, Some(sound(have.into())));
    }
}

/// The disk stays unchanged, whatever file system type the stage requests.
#[test]
fn lost_first_superblock_is_refused_as_damaged() {
    let Some(rig) = Rig::start() else { return };
    for (have, signature) in [
        (FsType::Ext3, Signature::Ext3),
        (FsType::Ext4, Signature::Ext4),
        (FsType::Xfs, Signature::Xfs),
    ] {
        let (volume, attached) = rig.staged_disk(512 * MIB, have);
        let root = rig.staged_root(&volume);
        fs::write(root.join("data"), "precious").expect("write");
        done(rig.unstage(&volume));
        attached.write(0, &[0; 8192]);
        for wanted in FsType::ALL {
            let same_family = (*wanted == FsType::Xfs) == (have == FsType::Xfs);
            let reason =
                if same_family { Refusal::FilesystemErrors } else { Refusal::ForeignContent };
            let found = refuses(&rig, &attached, rig.stage_request(&volume, *wanted), reason);
            let state = ContentState::Damaged;
            assert_eq!(found, Some(Observation::Content { signature, state }), "{wanted}");
        }
    }
}

#[test]
fn unreadable_disk_fails_stage_and_is_not_formatted() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    // The disk keeps its size, but none of its content can be read.
    fs::File::create(&attached.image).expect("truncate");
    shell("blockdev", &["--flushbufs", &attached.path()]);
    // Earlier kernels do so where they read the file without direct I/O, as on a tmpfs.
    if fs::read(attached.path()).is_ok() {
        println!("skipped: a loop device here reads zeros behind the end of its file");
        return;
    }
    let Outcome::Failed(failed) = rig.stage(&volume, FsType::Ext4) else {
        panic!("a failure expected");
    };
    assert_eq!(failed.step, Step::ReadDevice);
    assert_eq!(failed.errno.map(|e| e.get()), Some(5));
    assert_eq!(fs::metadata(&attached.image).expect("image").len(), 0);
    assert!(!rig.journal().contains(" tool "));
}

#[test]
fn stage_is_refused_when_request_contradicts_disk() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let flag = |name, value| vec![MountFlag::new(name, value).expect("flag")];
    type Row<'r> = (Refusal, &'r dyn Fn(&mut Stage));
    let rows: [Row<'_>; 6] = [
        (Refusal::DeviceTooSmall, &|s| s.disk.size_at_attach = NonZeroU64::new(64 * MIB + 1)),
        (Refusal::CopyWithoutFilesystem, &|s| s.disk.origin = Origin::Copy),
        (Refusal::ReadOnlyBlank, &|s| s.read_only = true),
        (Refusal::DeviceNotFound, &|s| s.disk.partition = NonZeroU32::new(1)),
        (Refusal::MountFlag, &|s| s.flags = flag("loop", None)),
        (Refusal::MountFlag, &|s| s.flags = flag("errors", Some("panic"))),
    ];
    for (reason, change) in rows {
        let mut request = rig.stage_request(&volume, FsType::Ext4);
        change(&mut request);
        refuses(&rig, &attached, request, reason);
    }
}

#[test]
fn stage_selects_disk_by_serial_not_device_name() {
    let Some(rig) = Rig::start() else { return };
    let (wanted, other) = (volume(), volume());
    let stranger = rig.attach(&other, 64 * MIB);
    // A device name or a link is only a hint.
    std::os::unix::fs::symlink(&stranger.name, rig.path("dev/xvdba")).expect("symlink");
    let mut request = rig.stage_request(&wanted, FsType::Ext4);
    request.disk.device_hint = ebs_csi_wire::DeviceName::parse("/dev/xvdba").ok();
    refuses(&rig, &stranger, request, Refusal::DeviceNotFound);

    let one = rig.attach(&wanted, 64 * MIB);
    let two = rig.attach_image(one.image.clone());
    refuses(&rig, &one, rig.stage_request(&wanted, FsType::Ext4), Refusal::DeviceAmbiguous);
    drop(two);
    assert!(staged(rig.stage(&wanted, FsType::Ext4)).formatted);
    done(rig.unstage(&wanted));
}

#[test]
fn stage_refuses_disk_opened_exclusively_by_another_process() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let claim = claim(attached.path());
    refuses(&rig, &attached, rig.stage_request(&volume, FsType::Ext4), Refusal::StillHeld);
    drop(claim);
    rig.stage_once(&volume, FsType::Ext4);
}

#[test]
fn stage_refuses_second_path_or_occupied_path() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let (other, second) = rig.new_disk(64 * MIB);
    staged(rig.stage(&volume, FsType::Ext4));

    let refused = refusal(rig.stage_with(&volume, FsType::Ext4, |request| {
        request.staging = rig.kubelet("plugins/kubernetes.io/csi/elsewhere/globalmount")
    }));
    let there = Observation::MountedAt(rig.kubelet(&staging(&volume)));
    assert_eq!(refused, Refused::because(Refusal::StagedElsewhere, there));
    let mut over = rig.stage_request(&other, FsType::Ext4);
    over.staging = rig.kubelet(&staging(&volume));
    refuses(&rig, &second, over, Refusal::MountedDifferently);
    assert_refused(
        rig.stage_with(&volume, FsType::Ext4, |request| request.read_only = true),
        Refusal::MountedDifferently,
    );
    // A volume cannot unstage another volume's mount either.
    let foreign = rig.unstage_operation(&other, &staging(&volume));
    assert_refused(rig.call(foreign), Refusal::VolumeNotAtPath);
    assert_eq!(rig.mounts(&attached), 1);
    done(rig.unstage(&volume));
}

#[test]
fn publish_target_shows_only_verified_staging_mount() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let (other, _second) = rig.new_disk(64 * MIB);
    assert_refused(rig.publish(&volume, "p"), Refusal::NotStaged);
    assert!(!rig.path("kubelet").join(target(&volume, "p")).exists());
    staged(rig.stage(&volume, FsType::Ext4));
    staged(rig.stage(&other, FsType::Ext4));

    assert_refused(
        rig.publish_with(&volume, "p", |request| request.disk = disk(&other)),
        Refusal::NotStaged,
    );
    done(rig.publish(&volume, "p"));
    assert_refused(
        rig.publish_with(&volume, "p", |request| request.read_only = true),
        Refusal::MountedDifferently,
    );
    assert_refused(rig.unpublish(&other, &target(&volume, "p")), Refusal::VolumeNotAtPath);
    assert_refused(rig.stats(&other, &target(&volume, "p")), Refusal::VolumeNotAtPath);
    assert_refused(rig.stats(&volume, &target(&volume, "nobody")), Refusal::VolumeNotAtPath);
    // A mounted file system is not published raw.
    let raw = refusal(rig.publish_block(&volume, "p"));
    assert_eq!(raw.reason, Refusal::StillHeld);
    assert!(matches!(raw.seen, Some(Observation::MountedAt(_))), "{raw:?}");
    // The volume is not unstaged while it is published to a pod; the refusal names the pod's
    // target.
    let there = Observation::MountedAt(rig.kubelet(&target(&volume, "p")));
    assert_eq!(refusal(rig.unstage(&volume)), Refused::because(Refusal::StillHeld, there));
    done(rig.unpublish(&volume, &target(&volume, "p")));

    // A file or directory that occupies a target stays.
    let occupied = rig.path("kubelet").join(target(&volume, "file"));
    fs::create_dir_all(occupied.parent().expect("parent")).expect("mkdir");
    fs::write(&occupied, "someone's").expect("write");
    assert_refused(rig.publish(&volume, "file"), Refusal::TargetOccupied);
    assert_refused(rig.unpublish(&volume, &target(&volume, "file")), Refusal::TargetOccupied);
    let full = rig.path("kubelet").join(target(&volume, "full"));
    fs::create_dir_all(full.join("kept")).expect("mkdir");
    assert_refused(rig.unpublish(&volume, &target(&volume, "full")), Refusal::TargetOccupied);
    assert!(full.join("kept").exists() && occupied.exists());
    assert_eq!(rig.mounts(&attached), 1);
    done(rig.unstage(&volume));
    done(rig.unstage(&other));
}

#[test]
fn expand_outside_required_and_limit_bytes_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.staged_disk(64 * MIB, FsType::Ext4);
    for (required, limit) in [(64 * MIB + 1, 0), (0, 64 * MIB - 1)] {
        let expand = rig.expand_operation(&volume, &staging(&volume), required, limit);
        let refused = Refused::because(Refusal::SizeOutOfRange, Observation::DiskBytes(64 * MIB));
        assert_eq!(refusal(rig.call(expand)), refused);
    }
    assert_refused(rig.expand(&volume, &target(&volume, "nobody")), Refusal::VolumeNotAtPath);
    done(rig.unstage(&volume));
    // No disk has this id.
    let nobody = VolumeId::parse("vol-1a2b3c4d").expect("id");
    assert_refused(rig.expand(&nobody, &staging(&nobody)), Refusal::VolumeNotAtPath);
}

/// Another thread exchanges the nodes of two disks during 40 stages. Each mount shows the file of
/// the requested volume.
#[test]
fn swapped_device_node_never_exposes_another_disk() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let Some(rig) = Rig::start() else { return };
    let (one, two) = (volume(), volume());
    let attached = [rig.attach(&one, 64 * MIB), rig.attach(&two, 64 * MIB)];
    for volume in [&one, &two] {
        staged(rig.stage(volume, FsType::Ext4));
        let file = rig.staged_root(volume).join("whose");
        fs::write(file, volume.as_str()).expect("write");
        done(rig.unstage(volume));
    }
    let nodes = [0, 1].map(|n: usize| rig.path("dev").join(&attached[n].name));
    let swapper = Repeated::start((), Duration::ZERO, move |()| {
        // An even number of exchanges leaves the nodes as they were at the start.
        for _ in 0..2 {
            renameat_with(CWD, &nodes[0], CWD, &nodes[1], RenameFlags::EXCHANGE).expect("swap");
            std::thread::yield_now();
        }
    });
    let mut shown = 0;
    let mut client = rig.client();
    for _ in 0..40 {
        if let Outcome::Staged(_) = client.call(rig.stage_operation(&one, FsType::Ext4), LONG) {
            shown += 1;
            assert_eq!(rig.staged_file(&one, "whose"), one.as_str());
        }
        let request = rig.unstage_operation(&one, &staging(&one));
        while !matches!(client.call(request.clone(), LONG), Outcome::Done(_)) {}
    }
    swapper.end();
    println!("staged in {shown} of 40 tries");
    assert!(rig.journal().matches("tool=mke2fs").count() == 2);
}
