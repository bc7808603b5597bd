//! Mounts that another mount namespace has copied, as a container does that mounts the node's `/`
//! without mount propagation.
use crate::disks::partitions::parted;
use crate::rig::{
    Attached, LONG, Namespace, Rig, able, done, staged, staging, told, unstaged, volume,
};
use ebs_csi_wire::{Done, FsType, Observation, Operation, Origin, Refusal, Refused, VolumeId};
use std::fs;
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MIB: u64 = 1 << 20;

/// A directory of the volume that is open in the namespace with the copy.
struct Open {
    directory: fs::File,
    _copy: Namespace,
}

impl Open {
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }
}

fn open_in_copy(rig: &Rig, volume: &VolumeId, copy: Namespace) -> Open {
    let path = rig.kubelet(&staging(volume));
    let there = PathBuf::from(format!("/proc/{}/root{path}", copy.pid()));
    Open { directory: fs::File::open(there).expect("the copy"), _copy: copy }
}

/// Stages a volume, writes data to it without a sync, and creates a namespace that has a copy of
/// its mount.
fn staged_and_copied(rig: &Rig, fs: FsType) -> (VolumeId, Attached, Namespace) {
    let (volume, attached) = rig.new_disk(512 * MIB);
    staged(rig.stage(&volume, fs));
    let copy = rig.copy_of_mounts();
    let root = rig.inside(&rig.kubelet(&staging(&volume)));
    for n in 0..100 {
        fs::write(root.join(format!("file-{n}")), format!("data {n}")).expect("write");
    }
    (volume, attached, copy)
}

fn holds_its_data(root: &Path) {
    for n in 0..100 {
        let text = fs::read_to_string(root.join(format!("file-{n}"))).expect("read");
        assert_eq!(text, format!("data {n}"));
    }
}

/// Checks the volume's data on another machine: a copy of the image, on a second disk, under
/// another helper.
fn on_another_node(volume: &VolumeId, attached: &Attached, fs: FsType) {
    let other = Rig::start_with(&[]);
    let image = other.path("volumes").join(format!("{volume}.img"));
    shell_copy(&attached.image, &image);
    let _attached = other.attach_image(image);
    let mut asked = other.staging(volume, fs);
    asked.disk.origin = Origin::Blank;
    let result = staged(other.ask(Operation::Stage(asked)));
    assert!(!result.formatted && !result.checked && !result.replayed, "{fs}: {result:?}");
    holds_its_data(&other.inside(&other.kubelet(&staging(volume))));
    done(other.unstage(volume));
}

fn shell_copy(from: &Path, to: &Path) {
    let (from, to) = (from.to_str().expect("utf-8"), to.to_str().expect("utf-8"));
    crate::rig::shell("cp", &["--sparse=always", from, to]);
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
        on_another_node(&volume, &attached, fs);
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
        let open = open_in_copy(&rig, &volume, copy);
        assert_eq!(unstaged(rig.unstage(&volume)), RELEASED, "{fs}");
        assert!(!rig.inside(&rig.kubelet(&staging(&volume))).exists());
        // The copy can no longer write anything, and reads through it still work.
        let root = open.path();
        let error = fs::write(root.join("late"), "x").expect_err("read-only");
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{fs}");
        holds_its_data(&root);
        // Kubelet repeats the request when the first answer was lost.
        let again = unstaged(rig.unstage(&volume));
        assert!(again.already && again.copied, "{fs}: {again:?}");
        on_another_node(&volume, &attached, fs);
        drop(open);
        rig.stop();
        assert!(rig.journal().contains("released-beside-copy"));
    }
}

/// The first helper ended between the unmount and the release. Another node then finds all data.
#[test]
fn restarted_helper_finishes_interrupted_release_of_copied_mount() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached, copy) = staged_and_copied(&rig, FsType::Ext4);
    let open = open_in_copy(&rig, &volume, copy);
    rig.stop();
    // Leaves the state of a helper that is killed between the unmount and the release.
    rig.forget_mounts(&attached);
    rig.run(&[]);
    let released = unstaged(rig.unstage(&volume));
    assert!(released.already && released.copied, "{released:?}");
    on_another_node(&volume, &attached, FsType::Ext4);
    drop(open);
}

#[test]
fn unstage_is_refused_while_copy_has_writer() {
    for fs in [FsType::Ext4, FsType::Xfs] {
        let Some(rig) = Rig::start() else { return };
        let (volume, _attached, copy) = staged_and_copied(&rig, fs);
        let open = open_in_copy(&rig, &volume, copy);
        let mut file = fs::File::create(open.path().join("open")).expect("create");
        let held = Refused::because(Refusal::StillHeld, Observation::Copied);
        assert_eq!(told(rig.unstage(&volume)), held, "{fs}");
        // The refusal does not harm the open file.
        std::io::Write::write_all(&mut file, b"more").expect("write");
        drop(file);
        let released = unstaged(rig.unstage(&volume));
        assert!(released.copied, "{fs}: {released:?}");
    }
}

/// With --copied-mounts refuse, the copy stays writable, and unstage succeeds only after the copy
/// is gone.
#[test]
fn refuse_option_blocks_unstage_until_copy_is_gone() {
    if !able() {
        return;
    }
    let rig = Rig::start_with(&["--copied-mounts", "refuse"]);
    let (volume, _attached, copy) = staged_and_copied(&rig, FsType::Ext4);
    let open = open_in_copy(&rig, &volume, copy);
    let held = Refused::because(Refusal::StillHeld, Observation::Copied);
    assert_eq!(told(rig.unstage(&volume)), held);
    fs::write(open.path().join("still"), "writable").expect("write");
    drop(open);
    // The kernel takes some time to remove a namespace.
    let end = Instant::now() + LONG;
    while let ebs_csi_wire::Outcome::Refused(refused) = rig.unstage(&volume) {
        assert!(Instant::now() < end, "{refused:?}");
    }
}

#[test]
fn volume_is_restaged_on_node_beside_open_copy() {
    for fs in [FsType::Ext4, FsType::Xfs] {
        let Some(rig) = Rig::start() else { return };
        let (volume, attached, copy) = staged_and_copied(&rig, fs);
        let open = open_in_copy(&rig, &volume, copy);
        assert!(unstaged(rig.unstage(&volume)).copied);
        // The copy is staged read-only first, and this stage must not make it writable.
        let mut reader = rig.staging(&volume, fs);
        reader.read_only = true;
        staged(rig.ask(Operation::Stage(reader)));
        let root = rig.inside(&rig.kubelet(&staging(&volume)));
        holds_its_data(&root);
        assert!(fs::write(root.join("new"), "x").is_err());
        assert!(unstaged(rig.unstage(&volume)).copied);
        let result = staged(rig.stage(&volume, fs));
        assert!(!result.formatted && !result.checked, "{fs}: {result:?}");
        fs::write(root.join("new"), "x").expect("write");
        holds_its_data(&root);
        assert_eq!(rig.mounts(&attached), 1);
        assert!(unstaged(rig.unstage(&volume)).copied);
        on_another_node(&volume, &attached, fs);
        drop(open);
    }
}

#[test]
fn partition_is_restaged_on_node_beside_open_copy() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let attached = parted(&rig, &volume);
    let mut asked = rig.staging(&volume, FsType::Ext4);
    asked.disk.partition = NonZeroU32::new(2);
    staged(rig.ask(Operation::Stage(asked.clone())));
    let copy = rig.copy_of_mounts();
    let open = open_in_copy(&rig, &volume, copy);
    assert_eq!(unstaged(rig.unstage(&volume)), RELEASED);
    staged(rig.ask(Operation::Stage(asked)));
    assert_eq!(unstaged(rig.unstage(&volume)), RELEASED);
    assert_eq!(rig.mounts(&attached), 0);
    drop(open);
}
