//! A disk that the helper does not use alone: mounted in another namespace, used as swap, beneath
//! another block device, or the node's own.
use crate::attacks::is_read_only;
use crate::disks::partitions::parted;
use crate::rig::{
    Attached, Elsewhere, MIB, Rig, assert_refused, block_target, claim, disk, done,
    make_filesystem, reason, refusal, retry_refused, shell, staged, text, unstaged, volume,
};
use ebs_csi_wire::{DeviceName, Disk, FsType, Observation, Refusal, Refused, VolumeId};
use std::fs;
use std::num::NonZeroU32;

fn part(volume: &VolumeId, number: u32) -> Disk {
    Disk { partition: NonZeroU32::new(number), ..disk(volume) }
}

struct AtEnd([String; 3]);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let _ = std::process::Command::new(&self.0[0]).args(&self.0[1..]).output();
    }
}

/// Puts a loop device over a disk until the returned value is dropped.
fn loop_over(attached: &Attached) -> AtEnd {
    let device = shell("losetup", &["--find", "--show", &attached.path()]);
    AtEnd(["losetup".into(), "-d".into(), device])
}

/// Checks that both kinds of raw publish are refused, that the disk's read-only switch is
/// unchanged, and that no target remains.
fn refuses_raw_publish(rig: &Rig, volume: &VolumeId, attached: &Attached) {
    for read_only in [false, true] {
        assert_refused(rig.publish_disk(&disk(volume), "p", read_only), Refusal::StillHeld);
        assert!(!is_read_only(&attached.name));
    }
    let target = rig.path("kubelet").join(block_target(volume, "p"));
    assert!(!target.exists(), "{}", target.display());
}

/// N3: a disk that is mounted in another mount namespace is published raw, writable and read-only.
#[test]
fn disk_mounted_in_other_namespace_not_published_raw() {
    let Some(rig) = Rig::start() else { return };
    for fs_type in [FsType::Ext4, FsType::Xfs] {
        let (volume, attached) = rig.made_disk(512 * MIB, fs_type);
        let elsewhere = Elsewhere::mount(&attached.path(), "rw");
        refuses_raw_publish(&rig, &volume, &attached);
        elsewhere.check_writable();
        drop(elsewhere);
        retry_refused(|| rig.publish_block(&volume, "p"));
        done(rig.unpublish_block(&volume, "p"));
    }
}

/// N3: a disk in use as swap is published raw.
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
    let off = AtEnd(["swapoff".into(), "--verbose".into(), attached.path()]);
    refuses_raw_publish(&rig, &volume, &attached);
    drop(off);
    done(rig.publish_block(&volume, "p"));
    done(rig.unpublish_block(&volume, "p"));
}

/// N3: A loop device over a disk that is already published does not block another publish.
#[test]
fn unpublished_disk_under_loop_device_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let over = loop_over(&attached);
    refuses_raw_publish(&rig, &volume, &attached);
    // The loop device makes no claim, so the disk looks free and blank.
    assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::StillHeld);
    drop(over);
    // Kubelet puts a loop device over a disk that it publishes to a pod, under another name.
    retry_refused(|| rig.publish_block(&volume, "p"));
    let over = loop_over(&attached);
    done(rig.publish_block(&volume, "q"));
    drop(over);
    for pod in ["p", "q"] {
        done(rig.unpublish_block(&volume, pod));
    }
}

/// N3: a disk with an entry in holders/ of sysfs is published raw.
#[test]
fn disk_with_sysfs_holder_is_not_published_raw() {
    let Some(rig) = Rig::start_xen() else { return };
    let volume = volume();
    let xen = rig.attach_xen("xvdba", "held.img", 64 * MIB);
    let named = Disk { device_hint: DeviceName::parse("/dev/xvdba").ok(), ..disk(&volume) };
    // The helper knows the disk from this publish on.
    done(rig.publish_disk(&named, "p", false));
    done(rig.unpublish_block(&volume, "p"));
    fs::create_dir(xen.directory().join("holders/dm-0")).expect("mkdir");
    for read_only in [false, true] {
        assert_refused(rig.publish_disk(&named, "p", read_only), Refusal::StillHeld);
    }
    fs::remove_dir(xen.directory().join("holders/dm-0")).expect("rmdir");
    done(rig.publish_disk(&named, "p", false));
    done(rig.unpublish_block(&volume, "p"));
}

#[test]
fn pod_opening_disk_exclusively_does_not_block_publish() {
    let Some(rig) = Rig::start() else { return };
    for read_only in [false, true] {
        let (volume, _attached) = rig.new_disk(64 * MIB);
        done(rig.publish_disk(&disk(&volume), "p", read_only));
        let node = rig.inside(&block_target(&volume, "p"));
        let claim = claim(&node);
        assert!(done(rig.publish_disk(&disk(&volume), "p", read_only)));
        assert!(!done(rig.publish_disk(&disk(&volume), "q", read_only)));
        drop(claim);
        for pod in ["p", "q"] {
            done(rig.unpublish_block(&volume, pod));
        }
    }
}

/// N8: a blank partition is staged or published while another of its disk is mounted on the host.
#[test]
fn blank_partition_beside_host_mounted_partition_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let attached = parted(&rig, &volume);
    let second = format!("{}p2", attached.path());
    make_filesystem(FsType::Ext4, &second);
    let elsewhere = Elsewhere::mount(&second, "rw");
    let first_part = part(&volume, 1);
    assert_refused(rig.stage_part(&volume, FsType::Ext4, 1), Refusal::StillHeld);
    assert_refused(rig.publish_disk(&first_part, "p", false), Refusal::StillHeld);
    let first = fs::read(format!("{}p1", attached.path())).expect("read");
    assert!(first.iter().all(|byte| *byte == 0), "formatted");
    elsewhere.check_writable();
    drop(elsewhere);
    // A blank partition may be used beside a partition that is staged here.
    retry_refused(|| rig.stage_part(&volume, FsType::Ext4, 2));
    done(rig.publish_disk(&first_part, "p", false));
    done(rig.unpublish_block(&volume, "p"));
    done(rig.unstage(&volume));
}

/// N8: a blank partition is staged while another of its disk holds kubelet's own directory.
#[test]
fn partition_of_disk_holding_kubelet_directory_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let attached = parted(&rig, &volume);
    let second = format!("{}p2", attached.path());
    make_filesystem(FsType::Ext4, &second);
    let kubelets = rig.path("kubelet/pods");
    // The name of the node in the rig's /dev.
    let node = format!("/dev/{}p2", attached.name);
    let kubelets = text(&kubelets);
    rig.within(&["mount", "-t", "ext4", &node, kubelets]);
    let there = Refused::because(Refusal::StillHeld, Observation::MountedAt(rig.kubelet("pods")));
    assert_eq!(refusal(rig.stage_part(&volume, FsType::Ext4, 1)), there);
    assert_eq!(refusal(rig.publish_disk(&part(&volume, 1), "p", false)), there);
    rig.within(&["umount", kubelets]);
}

/// N8: a disk whose file system the host has mounted, XFS and ext4, is staged and unstaged.
#[test]
fn host_mounted_disk_is_neither_staged_nor_unstaged() {
    let Some(rig) = Rig::start() else { return };
    for (fs_type, options) in
        [FsType::Xfs, FsType::Ext4].map(|fs| [(fs, "rw"), (fs, "ro")]).concat()
    {
        let (volume, attached) = rig.made_disk(512 * MIB, fs_type);
        let elsewhere = Elsewhere::mount(&attached.path(), options);
        for read_only in [false, true] {
            let outcome = rig.stage_with(&volume, fs_type, |request| request.read_only = read_only);
            assert_eq!(reason(outcome), Refusal::StillHeld, "{fs_type} {options}");
            assert_eq!(rig.mounts(&attached), 0, "{fs_type} {options}");
        }
        // The volume was never staged, and unstage must not make the mount read-only.
        assert_eq!(reason(rig.unstage(&volume)), Refusal::StillHeld, "{fs_type} {options}");
        match options {
            "rw" => elsewhere.check_writable(),
            _ => assert!(fs::write(elsewhere.root().join("kept"), "x").is_err()),
        }
    }
}

/// N3: A file is still open in the copy in another mount namespace. The publish succeeds after the
/// file is closed.
#[test]
fn disk_with_copied_mount_is_not_published_raw() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.staged_disk(64 * MIB, FsType::Ext4);
    let copy = rig.open_copy(&volume);
    done(rig.unstage(&volume));
    refuses_raw_publish(&rig, &volume, &attached);
    drop(copy);
    retry_refused(|| rig.publish_block(&volume, "p"));
    done(rig.unpublish_block(&volume, "p"));
}

/// The volume is like one that another driver formatted: its identifier does not hold the volume's
/// id.
#[test]
fn own_mount_copy_is_recognised_without_volume_uuid() {
    let Some(mut rig) = Rig::start() else { return };
    for fs_type in [FsType::Ext4, FsType::Xfs] {
        let (volume, _attached) = rig.made_disk(512 * MIB, fs_type);
        staged(rig.stage(&volume, fs_type));
        // A mount that was staged before this helper started is the helper's own, too.
        rig.restart(&[]);
        let copy = rig.open_copy(&volume);
        assert!(unstaged(rig.unstage(&volume)).copied, "{fs_type}");
        staged(rig.stage(&volume, fs_type));
        assert!(unstaged(rig.unstage(&volume)).copied, "{fs_type}");
        // The next helper does not know the copy, and treats it as another program's mount.
        rig.restart(&[]);
        assert_refused(rig.stage(&volume, fs_type), Refusal::StillHeld);
        drop(copy);
        retry_refused(|| rig.stage(&volume, fs_type));
        done(rig.unstage(&volume));
    }
}
