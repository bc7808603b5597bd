//! Mounts that another mount namespace has copied, as a container does that mounts the node's `/`
//! without mount propagation.
use crate::disks::partitions::parted;
use crate::rig::{
    Attached, MIB, Namespace, OpenCopy, Rig, done, refusal, retry_refused, staged, staging,
    unstaged, volume,
};
use ebs_csi_wire::{Done, FsType, Observation, Refusal, Refused, VolumeId};
use std::fs;
use std::path::Path;

/// Stages a volume, writes data to it without a sync, and creates a namespace that has a copy of
/// its mount.
fn staged_and_copied(rig: &Rig, fs: FsType) -> (VolumeId, Attached, Namespace) {
    let (volume, attached) = rig.staged_disk(512 * MIB, fs);
    let copy = rig.copy_of_mounts();
    let root = rig.staged_root(&volume);
    for n in 0..100 {
        fs::write(root.join(format!("file-{n}")), format!("data {n}")).expect("write");
    }
    (volume, attached, copy)
}

fn check_data(root: &Path) {
    for n in 0..100 {
        let text = fs::read_to_string(root.join(format!("file-{n}"))).expect("read");
        assert_eq!(text, format!("data {n}"));
    }
}

/// Checks the volume's data on another machine: a copy of the image, on a second disk, under
/// another helper.
fn check_on_another_node(volume: &VolumeId, attached: &Attached, fs: FsType) {
    let Some(other) = Rig::start() else { return };
    let _attached = other.attach_copy_for(volume, &attached.image);
    let result = staged(other.stage(volume, fs));
    assert!(!result.formatted && !result.checked && !result.replayed, "{fs}: {result:?}");
    check_data(&other.staged_root(volume));
    done(other.unstage(volume));
}

const RELEASED: Done = Done { already: false, copied: true };

/// When unstage removes the staging directory, the kernel also unmounts the copy in the other
/// namespace.
#[test]
fn unstage_removes_mount_copy_without_open_files() {
    for fs in [FsType::Ext4, FsType::Xfs] {
        let Some(mut rig) = Rig::start() else { return };
        let (volume, attached, copy) = staged_and_copied(&rig, fs);
        let released = unstaged(rig.unstage(&volume));
        assert!(!released.copied, "{fs}: {released:?}");
        check_on_another_node(&volume, &attached, fs);
        drop(copy);
        rig.stop();
        assert!(!rig.journal().contains("released-beside-copy"));
    }
}

#[test]
fn unstage_leaves_copied_mount_read_only_and_intact() {
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        let Some(mut rig) = Rig::start() else { return };
        let (volume, attached, copy) = staged_and_copied(&rig, fs);
        let open = OpenCopy::of(copy, &rig.kubelet(&staging(&volume)));
        assert_eq!(unstaged(rig.unstage(&volume)), RELEASED, "{fs}");
        assert!(!rig.staged_root(&volume).exists());
        // The copy can no longer write anything, and reads through it still work.
        let root = open.path();
        let error = fs::write(root.join("late"), "x").expect_err("read-only");
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{fs}");
        check_data(&root);
        // Kubelet repeats the request when the first answer was lost.
        let again = unstaged(rig.unstage(&volume));
        assert!(again.already && again.copied, "{fs}: {again:?}");
        check_on_another_node(&volume, &attached, fs);
        drop(open);
        rig.stop();
        assert!(rig.journal().contains("released-beside-copy"));
    }
}

#[test]
fn restarted_helper_finishes_interrupted_release_of_copied_mount() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached, copy) = staged_and_copied(&rig, FsType::Ext4);
    let open = OpenCopy::of(copy, &rig.kubelet(&staging(&volume)));
    rig.stop();
    // Leaves the state of a helper that is killed between the unmount and the release.
    rig.forget_mounts(&attached);
    rig.run(&[]);
    let released = unstaged(rig.unstage(&volume));
    assert!(released.already && released.copied, "{released:?}");
    check_on_another_node(&volume, &attached, FsType::Ext4);
    drop(open);
}

#[test]
fn unstage_is_refused_while_copy_has_writer() {
    for fs in [FsType::Ext4, FsType::Xfs] {
        let Some(rig) = Rig::start() else { return };
        let (volume, _attached, copy) = staged_and_copied(&rig, fs);
        let open = OpenCopy::of(copy, &rig.kubelet(&staging(&volume)));
        let mut file = fs::File::create(open.path().join("open")).expect("create");
        let held = Refused::because(Refusal::StillHeld, Observation::Copied);
        assert_eq!(refusal(rig.unstage(&volume)), held, "{fs}");
        // The refusal does not harm the open file.
        std::io::Write::write_all(&mut file, b"more").expect("write");
        drop(file);
        let released = unstaged(rig.unstage(&volume));
        assert!(released.copied, "{fs}: {released:?}");
    }
}

#[test]
fn refuse_option_blocks_unstage_until_copy_is_gone() {
    let Some(rig) = Rig::start_with(&["--copied-mounts", "refuse"]) else { return };
    let (volume, _attached, copy) = staged_and_copied(&rig, FsType::Ext4);
    let open = OpenCopy::of(copy, &rig.kubelet(&staging(&volume)));
    let held = Refused::because(Refusal::StillHeld, Observation::Copied);
    assert_eq!(refusal(rig.unstage(&volume)), held);
    fs::write(open.path().join("still"), "writable").expect("write");
    drop(open);
    done(retry_refused(|| rig.unstage(&volume)));
}

#[test]
fn volume_is_restaged_on_node_beside_open_copy() {
    for fs in [FsType::Ext4, FsType::Xfs] {
        let Some(rig) = Rig::start() else { return };
        let (volume, attached, copy) = staged_and_copied(&rig, fs);
        let open = OpenCopy::of(copy, &rig.kubelet(&staging(&volume)));
        assert!(unstaged(rig.unstage(&volume)).copied);
        // The copy is staged read-only first, and this stage must not make it writable.
        staged(rig.stage_with(&volume, fs, |request| request.read_only = true));
        let root = rig.staged_root(&volume);
        check_data(&root);
        assert!(fs::write(root.join("new"), "x").is_err());
        assert!(unstaged(rig.unstage(&volume)).copied);
        let result = staged(rig.stage(&volume, fs));
        assert!(!result.formatted && !result.checked, "{fs}: {result:?}");
        fs::write(root.join("new"), "x").expect("write");
        check_data(&root);
        assert_eq!(rig.mounts(&attached), 1);
        assert!(unstaged(rig.unstage(&volume)).copied);
        check_on_another_node(&volume, &attached, fs);
        drop(open);
    }
}

#[test]
fn partition_is_restaged_on_node_beside_open_copy() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let attached = parted(&rig, &volume);
    let stage = || staged(rig.stage_part(&volume, FsType::Ext4, 2));
    stage();
    let open = rig.open_copy(&volume);
    assert_eq!(unstaged(rig.unstage(&volume)), RELEASED);
    stage();
    assert_eq!(unstaged(rig.unstage(&volume)), RELEASED);
    assert_eq!(rig.mounts(&attached), 0);
    drop(open);
}
