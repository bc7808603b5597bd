//! A disk that the helper does not use alone: mounted in another namespace, used as swap, beneath
//! another block device, or the node's own.
use super::{MIB, is_read_only};
use crate::attacks::row;
use crate::disks::partitions::parted;
use crate::rig::{
    Attached, Elsewhere, LONG, Rig, assert_refused, block_target, disk, done, refused, shell,
    staged, staging, told, unstaged, volume,
};
use ebs_csi_wire::{
    DeviceName, Disk, FsType, Observation, Operation, Outcome, PublishBlock, Refusal, Refused,
    VolumeId,
};
use std::fs;
use std::num::NonZeroU32;
use std::time::Instant;

fn show(rig: &Rig, disk: &Disk, pod: &str, read_only: bool) -> Outcome {
    rig.ask(Operation::PublishBlock(PublishBlock {
        disk: disk.clone(),
        target: rig.kubelet(&block_target(&disk.volume, pod)),
        read_only,
    }))
}

fn part(volume: &VolumeId, number: u32) -> Disk {
    Disk { partition: NonZeroU32::new(number), ..disk(volume) }
}

/// A loop device over another loop device.
struct Over(String);

impl Over {
    fn lay(attached: &Attached) -> Self {
        Self(shell("losetup", &["--find", "--show", &attached.path()]))
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["-d", &self.0]).output();
    }
}

/// Repeats a request until the kernel has removed a namespace, which takes some time.
fn once_let_go(ask: impl Fn() -> Outcome) {
    let end = Instant::now() + LONG;
    while let Outcome::Refused(refused) = ask() {
        assert!(Instant::now() < end, "{refused:?}");
    }
}

/// Checks that both kinds of raw publish are refused, that the disk's read-only switch is
/// unchanged, and that no target remains.
fn is_not_shown(rig: &Rig, volume: &VolumeId, attached: &Attached) {
    for read_only in [false, true] {
        assert_refused(show(rig, &disk(volume), "p", read_only), Refusal::StillHeld);
        assert!(!is_read_only(&attached.name));
    }
    let target = rig.path("kubelet").join(block_target(volume, "p"));
    assert!(!target.exists(), "{}", target.display());
}

#[test]
fn disk_mounted_in_other_namespace_not_published_raw() {
    let Some(rig) = Rig::start() else { return };
    for fs_type in [FsType::Ext4, FsType::Xfs] {
        let (volume, attached) = rig.new_disk(512 * MIB);
        shell(&format!("mkfs.{fs_type}"), &["-q", &attached.path()]);
        let elsewhere = Elsewhere::mount(&attached.path(), "rw");
        is_not_shown(&rig, &volume, &attached);
        elsewhere.lives();
        drop(elsewhere);
        once_let_go(|| show(&rig, &disk(&volume), "p", false));
        done(rig.unpublish(&volume, &block_target(&volume, "p")));
    }
    row(
        "N3",
        "a disk that is mounted in another mount namespace is published raw, writable and read-only",
        "refused as held; its owner's writes go on",
    );
}

#[test]
fn active_swap_disk_is_not_published_raw() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    shell("mkswap", &["-q", &attached.path()]);
    let on = std::process::Command::new("swapon").arg(attached.path()).output().expect("swapon");
    if !on.status.success() {
        println!("skipped: {}", String::from_utf8_lossy(&on.stderr).trim());
        return;
    }
    struct Off(String);
    impl Drop for Off {
        fn drop(&mut self) {
            let _ = std::process::Command::new("swapoff").arg(&self.0).output();
        }
    }
    let off = Off(attached.path());
    is_not_shown(&rig, &volume, &attached);
    drop(off);
    done(show(&rig, &disk(&volume), "p", false));
    done(rig.unpublish(&volume, &block_target(&volume, "p")));
    row("N3", "a disk in use as swap is published raw", "refused as held");
}

/// A loop device over a disk that is already published does not block another publish.
#[test]
fn unpublished_disk_under_loop_device_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let over = Over::lay(&attached);
    is_not_shown(&rig, &volume, &attached);
    // The loop device makes no claim, so the disk looks free and blank.
    assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::StillHeld);
    drop(over);
    // Kubelet puts a loop device over a disk that it publishes to a pod, under another name.
    once_let_go(|| show(&rig, &disk(&volume), "p", false));
    let over = Over::lay(&attached);
    done(show(&rig, &disk(&volume), "q", false));
    drop(over);
    for pod in ["p", "q"] {
        done(rig.unpublish(&volume, &block_target(&volume, pod)));
    }
    row(
        "N3",
        "a disk beneath a loop device is published raw or staged",
        "refused as held; not when it is published already",
    );
}

#[test]
fn disk_with_sysfs_holder_is_not_published_raw() {
    let Some(rig) = Rig::start_xen() else { return };
    let volume = volume();
    let xen = rig.attach_xen("xvdba", "held.img", 64 * MIB);
    let named = Disk { device_hint: DeviceName::parse("/dev/xvdba").ok(), ..disk(&volume) };
    // The helper knows the disk from this publish on.
    done(show(&rig, &named, "p", false));
    done(rig.unpublish(&volume, &block_target(&volume, "p")));
    fs::create_dir(xen.directory().join("holders/dm-0")).expect("mkdir");
    for read_only in [false, true] {
        assert_refused(show(&rig, &named, "p", read_only), Refusal::StillHeld);
    }
    fs::remove_dir(xen.directory().join("holders/dm-0")).expect("rmdir");
    done(show(&rig, &named, "p", false));
    done(rig.unpublish(&volume, &block_target(&volume, "p")));
    row("N3", "a disk with an entry in holders/ of sysfs is published raw", "refused as held");
}

#[test]
fn pod_opening_disk_exclusively_does_not_block_publish() {
    let Some(rig) = Rig::start() else { return };
    for read_only in [false, true] {
        let (volume, _attached) = rig.new_disk(64 * MIB);
        done(show(&rig, &disk(&volume), "p", read_only));
        let node = rig.inside(&rig.kubelet(&block_target(&volume, "p")));
        let claim = rustix::fs::open(
            &node,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .expect("the pod's claim");
        assert!(done(show(&rig, &disk(&volume), "p", read_only)));
        assert!(!done(show(&rig, &disk(&volume), "q", read_only)));
        drop(claim);
        for pod in ["p", "q"] {
            done(rig.unpublish(&volume, &block_target(&volume, pod)));
        }
    }
}

#[test]
fn blank_partition_beside_host_mounted_partition_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let attached = parted(&rig, &volume);
    let second = format!("{}p2", attached.path());
    shell("mkfs.ext4", &["-q", &second]);
    let elsewhere = Elsewhere::mount(&second, "rw");
    let mut asked = rig.staging(&volume, FsType::Ext4);
    asked.disk = part(&volume, 1);
    assert_refused(rig.ask(Operation::Stage(asked.clone())), Refusal::StillHeld);
    assert_refused(show(&rig, &asked.disk, "p", false), Refusal::StillHeld);
    let first = fs::read(format!("{}p1", attached.path())).expect("read");
    assert!(first.iter().all(|byte| *byte == 0), "formatted");
    elsewhere.lives();
    drop(elsewhere);
    // A blank partition may be used beside a partition that is staged here.
    let mut own = rig.staging(&volume, FsType::Ext4);
    own.disk = part(&volume, 2);
    once_let_go(|| rig.ask(Operation::Stage(own.clone())));
    done(show(&rig, &asked.disk, "p", false));
    done(rig.unpublish(&volume, &block_target(&volume, "p")));
    done(rig.unstage(&volume));
    row(
        "N8",
        "a blank partition is staged or published while another of its disk is mounted on the host",
        "refused as held; not beside a partition that is staged here",
    );
}

#[test]
fn partition_of_disk_holding_kubelet_directory_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let attached = parted(&rig, &volume);
    let second = format!("{}p2", attached.path());
    shell("mkfs.ext4", &["-q", &second]);
    let kubelets = rig.path("kubelet/pods");
    // The name of the node in the rig's /dev.
    let node = format!("/dev/{}p2", attached.name);
    let kubelets = kubelets.to_str().expect("utf-8");
    rig.within(&["mount", "-t", "ext4", &node, kubelets]);
    let mut asked = rig.staging(&volume, FsType::Ext4);
    asked.disk = part(&volume, 1);
    let there = Refused::because(Refusal::StillHeld, Observation::MountedAt(rig.kubelet("pods")));
    assert_eq!(told(rig.ask(Operation::Stage(asked.clone()))), there);
    assert_eq!(told(show(&rig, &asked.disk, "p", false)), there);
    rig.within(&["umount", kubelets]);
    row(
        "N8",
        "a blank partition is staged while another of its disk holds kubelet's own directory",
        "refused as held, naming the directory",
    );
}

#[test]
fn host_mounted_disk_is_neither_staged_nor_unstaged() {
    let Some(rig) = Rig::start() else { return };
    for (fs_type, options) in
        [(FsType::Xfs, "rw"), (FsType::Xfs, "ro"), (FsType::Ext4, "rw"), (FsType::Ext4, "ro")]
    {
        let (volume, attached) = rig.new_disk(512 * MIB);
        shell(&format!("mkfs.{fs_type}"), &["-q", &attached.path()]);
        let elsewhere = Elsewhere::mount(&attached.path(), options);
        for read_only in [false, true] {
            let mut asked = rig.staging(&volume, fs_type);
            asked.read_only = read_only;
            assert_eq!(
                refused(rig.ask(Operation::Stage(asked))),
                Refusal::StillHeld,
                "{fs_type} {options}"
            );
            assert_eq!(rig.mounts(&attached), 0, "{fs_type} {options}");
        }
        // The volume was never staged, and unstage must not make the mount read-only.
        assert_eq!(refused(rig.unstage(&volume)), Refusal::StillHeld, "{fs_type} {options}");
        match options {
            "rw" => elsewhere.lives(),
            _ => assert!(fs::write(elsewhere.root().join("kept"), "x").is_err()),
        }
    }
    row(
        "N8",
        "a disk whose file system the host has mounted, XFS and ext4, is staged and unstaged",
        "refused as held; the host's mount stays as it was",
    );
}

/// A file is still open in the copy in another mount namespace. The publish succeeds after the file
/// is closed.
#[test]
fn disk_with_copied_mount_is_not_published_raw() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    staged(rig.stage(&volume, FsType::Ext4));
    let copy = rig.copy_of_mounts();
    let inside = rig.kubelet(&staging(&volume));
    let open = fs::File::open(format!("/proc/{}/root{inside}", copy.pid())).expect("the copy");
    done(rig.unstage(&volume));
    is_not_shown(&rig, &volume, &attached);
    drop((open, copy));
    once_let_go(|| show(&rig, &disk(&volume), "p", false));
    done(rig.unpublish(&volume, &block_target(&volume, "p")));
    row(
        "N3",
        "a disk whose file system lives on in a copied mount namespace is published raw",
        "refused as held until the last file there is closed",
    );
}

/// The volume is like one that another driver formatted: its identifier does not hold the volume's
/// id.
#[test]
fn own_mount_copy_is_recognised_without_volume_uuid() {
    let Some(mut rig) = Rig::start() else { return };
    for fs_type in [FsType::Ext4, FsType::Xfs] {
        let (volume, attached) = rig.new_disk(512 * MIB);
        shell(&format!("mkfs.{fs_type}"), &["-q", &attached.path()]);
        staged(rig.stage(&volume, fs_type));
        // A mount that was staged before this helper started is the helper's own, too.
        rig.stop();
        rig.run(&[]);
        let copy = rig.copy_of_mounts();
        let inside = rig.kubelet(&staging(&volume));
        let open = fs::File::open(format!("/proc/{}/root{inside}", copy.pid())).expect("the copy");
        assert!(unstaged(rig.unstage(&volume)).copied, "{fs_type}");
        staged(rig.stage(&volume, fs_type));
        assert!(unstaged(rig.unstage(&volume)).copied, "{fs_type}");
        // The next helper does not know the copy, and treats it as another program's mount.
        rig.stop();
        rig.run(&[]);
        assert_refused(rig.stage(&volume, fs_type), Refusal::StillHeld);
        drop((open, copy));
        once_let_go(|| rig.stage(&volume, fs_type));
        done(rig.unstage(&volume));
    }
}
