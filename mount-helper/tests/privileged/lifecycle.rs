//! The life of a volume on a node, for each file system and for a raw device.
use crate::rig::{
    MIB, Rig, assert_refused, block_target, claim, disk, done, grows_mounted, refusal, set_mode,
    staged, staging, target, usage, volume, write_synced,
};
use ebs_csi_wire::{
    Expanded, Failed, FsType, LogPage, NvmeStatistics, Operation, Outcome, Refusal, Step, Usage,
};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

fn write_device(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut device = fs::File::options().write(true).open(path)?;
    device.write_all(bytes)?;
    device.sync_all()
}

#[test]
fn volume_keeps_data_across_nodes() {
    for fs_type in FsType::ALL {
        println!("{fs_type}");
        life_of(*fs_type);
    }
}

fn life_of(fs_type: FsType) {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(512 * MIB);

    let first = staged(rig.stage(&volume, fs_type));
    assert!(first.formatted && !first.already && !first.checked);
    assert_eq!(first.device_bytes, 512 * MIB);
    let again = staged(rig.stage(&volume, fs_type));
    assert!(again.already && !again.formatted && !again.grown);

    for pod in ["one", "two"] {
        assert!(!done(rig.publish(&volume, pod)));
        assert!(done(rig.publish(&volume, pod)));
    }
    write_synced(&rig.published_root(&volume, "one").join("data"), "written by a pod");
    assert_eq!(rig.published_file(&volume, "two", "data"), "written by a pod");
    assert_eq!(rig.mounts(&attached), 3);

    let usage = usage(rig.stats(&volume, &target(&volume, "one")));
    assert!(!usage.block && usage.total_bytes > 256 * MIB && usage.used_inodes > 0);
    assert!(usage.available_bytes <= usage.total_bytes);

    // A volume that is published to pods is not unstaged.
    assert_refused(rig.unstage(&volume), Refusal::StillHeld);
    for pod in ["one", "two"] {
        assert!(!done(rig.unpublish(&volume, &target(&volume, pod))));
        assert!(done(rig.unpublish(&volume, &target(&volume, pod))));
        assert!(!rig.published_root(&volume, pod).exists());
    }
    assert_eq!(rig.mounts(&attached), 1);
    assert!(!done(rig.unstage(&volume)));
    assert!(done(rig.unstage(&volume)));
    assert_eq!(rig.mounts(&attached), 0);
    assert!(!rig.staged_root(&volume).exists());
    let restaged = staged(rig.stage(&volume, fs_type));
    assert!(!restaged.formatted && !restaged.checked, "{restaged:?}");
    assert!(!done(rig.unstage(&volume)));

    // A second node finds the same bytes.
    let image = attached.image.clone();
    drop(attached);
    let Some(elsewhere) = Rig::start() else { return };
    let attached = elsewhere.attach_image(image);
    let there = staged(elsewhere.stage(&volume, fs_type));
    assert!(!there.formatted);
    assert!(!done(elsewhere.publish(&volume, "three")));
    assert_eq!(elsewhere.published_file(&volume, "three", "data"), "written by a pod");
    assert!(!done(elsewhere.unpublish(&volume, &target(&volume, "three"))));
    assert!(!done(elsewhere.unstage(&volume)));
    drop(attached);
}

/// The file was in the staging directory before the mount, which covered it.
#[test]
fn unstage_succeeds_and_names_left_over_file() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 << 20);
    let directory = rig.make_target(&staging(&volume));
    let file = Path::new(&directory).join("left-by-somebody");
    fs::write(&file, "kept").expect("write");
    for already in [false, true] {
        if !already {
            staged(rig.stage(&volume, FsType::Ext4));
        }
        assert_eq!(done(rig.unstage(&volume)), already);
        assert_eq!(rig.mounts(&attached), 0);
        assert_eq!(fs::read_to_string(&file).expect("read"), "kept");
    }
    // Nobody holds the disk any more.
    drop(claim(attached.path()));
    rig.stage_once(&volume, FsType::Ext4);
    rig.stop();
    let line = format!("left-over volume={volume} directory={directory} entries=left-by-somebody");
    assert!(rig.journal().contains(&line), "{}", rig.journal());
}

#[test]
fn raw_block_volume_is_published_expanded_and_unpublished() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    assert!(!done(rig.publish_block(&volume, "one")));
    assert!(done(rig.publish_block(&volume, "one")));
    let target = block_target(&volume, "one");
    write_device(&rig.inside(&target), b"raw bytes").expect("write");
    assert!(fs::read(&attached.image).expect("image").starts_with(b"raw bytes"));
    assert_eq!(
        rig.stats(&volume, &target),
        Outcome::Usage(Usage { block: true, total_bytes: 64 * MIB, ..Usage::default() })
    );
    attached.resize(96 * MIB);
    assert_eq!(
        rig.expand(&volume, &target),
        Outcome::Expanded(Expanded { device_bytes: 96 * MIB, filesystem_bytes: 0 })
    );
    assert!(!done(rig.unpublish(&volume, &target)));
    assert!(done(rig.unpublish(&volume, &target)));
    assert!(!rig.inside(&target).exists());
}

/// The application owns the root directory of the volume and gives it mode 0700.
#[test]
fn used_xfs_with_private_root_grows() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.staged_disk(512 * MIB, FsType::Xfs);
    done(rig.publish(&volume, "one"));
    let root = rig.staged_root(&volume);
    std::os::unix::fs::chown(&root, Some(1234), Some(1234)).expect("chown");
    set_mode(&root, 0o700);
    for (path, bytes) in [(target(&volume, "one"), 1024 * MIB), (staging(&volume), 1536 * MIB)] {
        attached.resize(bytes);
        assert_eq!(rig.expand(&volume, &path), grown(bytes));
    }
    rig.withdraw(&volume, "one");
}

/// kubelet asks for growth at the path of one pod, which may be a read-only one.
fn grow_at_read_only_target(fs_type: FsType, grows: bool) {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.staged_disk(512 * MIB, fs_type);
    done(rig.publish_with(&volume, "reader", |request| request.read_only = true));
    attached.resize(1024 * MIB);
    let size = || usage(rig.stats(&volume, &staging(&volume))).total_bytes;
    let before = size();
    let outcome = rig.expand(&volume, &target(&volume, "reader"));
    if grows {
        assert_eq!(outcome, grown(1024 * MIB));
        assert!(size() > before + 400 * MIB, "{before} {}", size());
    } else {
        assert_eq!(outcome, not_grown(1));
        assert_eq!(size(), before);
    }
    rig.withdraw(&volume, "reader");
}

#[test]
fn growth_at_read_only_target_reaches_writable_mount() {
    grow_at_read_only_target(FsType::Xfs, true);
}

#[test]
fn read_only_ext4_target_grows_if_host_allows() {
    grow_at_read_only_target(FsType::Ext4, grows_mounted());
}

#[test]
fn read_only_file_system_reports_no_growth() {
    let Some(rig) = Rig::start() else { return };
    for fs_type in [FsType::Xfs, FsType::Ext4, FsType::Ext3] {
        let (volume, attached) = rig.formatted_disk(512 * MIB, fs_type);
        staged(rig.stage_with(&volume, fs_type, |request| request.read_only = true));
        done(rig.publish_with(&volume, "reader", |request| request.read_only = true));
        let places = [staging(&volume), target(&volume, "reader")];
        for place in &places {
            // The file system is as large as its disk.
            assert_eq!(rig.expand(&volume, place), grown(512 * MIB), "{fs_type}");
        }
        attached.resize(1024 * MIB);
        for place in &places {
            assert_eq!(rig.expand(&volume, place), not_grown(30), "{fs_type}");
        }
        rig.withdraw(&volume, "reader");
    }
}

/// Returns the answer to a growth after which the file system is as large as its disk.
fn grown(bytes: u64) -> Outcome {
    Outcome::Expanded(Expanded { device_bytes: bytes, filesystem_bytes: bytes })
}

/// Returns the answer to a growth that the kernel refuses with this errno.
fn not_grown(errno: i32) -> Outcome {
    let errno = std::num::NonZeroI32::new(errno);
    Outcome::Failed(Failed { step: Step::Grow, errno, tool: None, node: None })
}

#[test]
fn many_volumes_are_staged_at_once() {
    let Some(rig) = Rig::start() else { return };
    let volumes: Vec<_> = (0..20).map(|_| volume()).collect();
    let attached: Vec<_> = volumes.iter().map(|volume| rig.attach(volume, 64 * MIB)).collect();
    std::thread::scope(|scope| {
        for volume in &volumes {
            scope.spawn(|| {
                assert!(staged(rig.stage(volume, FsType::Ext4)).formatted);
                assert!(!done(rig.publish(volume, "one")));
            });
        }
    });
    for (volume, attached) in volumes.iter().zip(&attached) {
        assert_eq!(rig.mounts(attached), 2);
        rig.withdraw(volume, "one");
    }
}

/// For this growth the kernel requires CAP_SYS_RESOURCE, which a host need not grant.
#[test]
fn mounted_ext4_grows_only_with_cap_sys_resource() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.staged_disk(512 * MIB, FsType::Ext4);
    attached.resize(1024 * MIB);
    let granted = !rig.journal().contains("not_granted=CAP_SYS_RESOURCE");
    match rig.expand(&volume, &staging(&volume)) {
        outcome @ Outcome::Expanded(_) if granted => {
            assert_eq!(outcome, grown(1024 * MIB));
            // Printed for the console of the virtual machine.
            println!("grown while it is mounted");
        }
        outcome @ Outcome::Failed(_) if !granted => {
            assert_eq!(outcome, not_grown(1));
            // The volume stays staged after the failed growth.
            let again = staged(rig.stage(&volume, FsType::Ext4));
            assert!(again.already && !again.grown);
        }
        other => panic!("{other:?}, granted: {granted}"),
    }
    done(rig.unstage(&volume));
}

#[test]
fn ext4_grows_when_it_is_staged_again() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.staged_disk(512 * MIB, FsType::Ext4);
    let before = usage(rig.stats(&volume, &staging(&volume)));
    done(rig.unstage(&volume));
    attached.resize(1024 * MIB);
    let grown = staged(rig.stage(&volume, FsType::Ext4));
    assert!(grown.grown && !grown.formatted, "{grown:?}");
    let after = usage(rig.stats(&volume, &staging(&volume)));
    assert!(after.total_bytes > before.total_bytes + 400 * MIB);
    done(rig.unstage(&volume));
    let again = staged(rig.stage(&volume, FsType::Ext4));
    assert!(!again.grown && !again.checked, "{again:?}");
    done(rig.unstage(&volume));
}

#[test]
fn read_only_raw_publish_blocks_all_writes() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let publish = |pod: &str, read_only| rig.publish_disk(&disk(&volume), pod, read_only);
    let unpublish = |pod: &str| done(rig.unpublish_block(&volume, pod));
    let write = |path: &Path| write_device(path, &[7; 4096]);
    let inside = |pod: &str| rig.inside(&block_target(&volume, pod));
    let kernels: PathBuf = attached.path().into();
    assert!(!done(publish("one", true)));
    assert!(done(publish("one", true)));
    assert!(!done(publish("two", true)));
    for path in [inside("one"), inside("two"), kernels.clone()] {
        let error = write(&path).expect_err("read-only");
        assert!(matches!(error.raw_os_error(), Some(1 | 13 | 30)), "{}: {error}", path.display());
    }
    // A disk is published either read-only or writable, because a reader relies on unchanging data.
    let refused = refusal(publish("three", false));
    assert_eq!(refused.reason, Refusal::StillHeld);
    assert!(matches!(refused.seen, Some(ebs_csi_wire::Observation::MountedAt(_))));
    unpublish("one");
    write(&kernels).expect_err("two is still there");
    // A stage beside a read-only publish is refused as well.
    assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::StillHeld);
    unpublish("two");
    write(&kernels).expect("as it was before");
    assert!(!done(publish("three", false)));
    write(&inside("three")).expect("writable");
    assert_refused(publish("one", true), Refusal::StillHeld);
    unpublish("three");
}

/// Without the file NAME.0xd0 beside the device node the request is refused. A link in the file's
/// place is an error.
#[test]
fn simulated_disk_serves_statistics_from_adjacent_file() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let statistics =
        || rig.call(Operation::NvmeStatistics(NvmeStatistics { volume: volume.clone() }));
    assert_refused(statistics(), Refusal::Unsupported);
    let file = rig.path("dev").join(format!("{}.0xd0", attached.name));
    let page: Vec<u8> = (0..=255).cycle().take(4096).collect();
    fs::write(&file, &page).expect("write");
    assert_eq!(statistics(), Outcome::LogPage(LogPage { page }));
    fs::remove_file(&file).expect("remove");
    std::os::unix::fs::symlink("/etc/passwd", &file).expect("symlink");
    assert!(matches!(statistics(), Outcome::Failed(_)));
}
