//! File systems that a backup hook has frozen and not thawed.
use crate::rig::{
    Attached, MIB, Rig, check_filesystem, done, shell, staged, staging, target, text, unstaged,
};
use ebs_csi_wire::{FsType, VolumeId};
use std::fs;
use std::process::Command;

const ALL: [FsType; 3] = [FsType::Ext4, FsType::Ext3, FsType::Xfs];

struct Frozen {
    volume: VolumeId,
    attached: Attached,
}

impl Frozen {
    fn new(rig: &Rig, fs: FsType) -> Self {
        let (volume, attached) = rig.staged_disk(512 * MIB, fs);
        done(rig.publish(&volume, "p"));
        let root = rig.published_root(&volume, "p");
        fs::write(root.join("file"), "written before the freeze").expect("write");
        let frozen = Self { volume, attached };
        shell("fsfreeze", &["--freeze", text(&root)]);
        done(rig.unpublish(&frozen.volume, &target(&frozen.volume, "p")));
        frozen
    }

    fn check_data(&self, rig: &Rig) {
        let root = rig.staged_root(&self.volume);
        let found = fs::read_to_string(root.join("file")).expect("read");
        assert_eq!(found, "written before the freeze");
        fs::write(root.join("new"), "a frozen file system would block this").expect("write");
    }
}

impl Drop for Frozen {
    /// Thaws what a failed test has left frozen, perhaps without a mount.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let script = "mount \"$0\" /mnt && { fsfreeze --unfreeze /mnt; umount /mnt; }";
            let mut apart = Command::new("unshare");
            apart.args(["--mount", "sh", "-c", script, &self.attached.path()]);
            let _ = apart.status();
        }
    }
}

#[test]
fn frozen_volume_is_thawed_and_unstaged() {
    for fs in ALL {
        let Some(mut rig) = Rig::start() else { return };
        let frozen = Frozen::new(&rig, fs);
        let released = unstaged(rig.unstage(&frozen.volume));
        assert!(!released.copied, "{fs}: {released:?}");
        check_filesystem(fs, &frozen.attached.path());
        let again = staged(rig.stage(&frozen.volume, fs));
        assert!(!again.replayed && !again.repaired, "{fs}: {again:?}");
        frozen.check_data(&rig);
        done(rig.unstage(&frozen.volume));
        rig.stop();
        assert_eq!(rig.journal().matches(" thawed ").count(), 1, "{}", rig.journal());
    }
}

/// Somebody else unmounted the volume, so that nothing but the freeze keeps the file system alive.
#[test]
fn frozen_filesystem_without_mount_is_released() {
    for (fs, copied) in ALL.into_iter().zip(["release", "refuse", "release"]) {
        let Some(rig) = Rig::start_with(&["--copied-mounts", copied]) else { return };
        let frozen = Frozen::new(&rig, fs);
        rig.forget_mounts(&frozen.attached);
        let released = unstaged(rig.unstage(&frozen.volume));
        assert!(!released.copied, "{fs}: {released:?}");
        check_filesystem(fs, &frozen.attached.path());
        staged(rig.stage(&frozen.volume, fs));
        frozen.check_data(&rig);
    }
}

#[test]
fn frozen_filesystem_without_mount_is_staged() {
    for fs in ALL {
        let Some(rig) = Rig::start() else { return };
        let frozen = Frozen::new(&rig, fs);
        rig.forget_mounts(&frozen.attached);
        staged(rig.stage(&frozen.volume, fs));
        frozen.check_data(&rig);
        assert_eq!(rig.mounts(&frozen.attached), 1, "{}", rig.mount_at(&staging(&frozen.volume)));
        done(rig.unstage(&frozen.volume));
        check_filesystem(fs, &frozen.attached.path());
    }
}
