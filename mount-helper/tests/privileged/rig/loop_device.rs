//! A disk of the rig.
use super::{
    LONG, Rig, copy_sparse, done, make_filesystem, shell, staged, text, volume, wait_until,
};
use ebs_csi_wire::{FsType, VolumeId};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A loop device over `<volume>.img`, with its node in the rig's device directory.
pub(crate) struct Attached {
    pub(crate) image: PathBuf,
    /// The kernel's name, `loopN`.
    pub(crate) name: String,
    pub(super) node: PathBuf,
}

impl Attached {
    /// Returns the path of the kernel's own device node, outside of the rig.
    pub(crate) fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Returns the disk's number as in mountinfo, `7:3`.
    pub(crate) fn number(&self) -> String {
        number(&self.path())
    }

    pub(crate) fn resize(&self, bytes: u64) {
        let image = fs::File::options().write(true).open(&self.image).expect("image");
        image.set_len(bytes).expect("set_len");
        shell("losetup", &["-c", &self.path()]);
    }

    /// Makes the kernel find the disk's partitions.
    ///
    /// A loop device keeps the partitions of its last user that were open when `partx` was to
    /// delete them, so they are deleted first.
    pub(crate) fn add_partitions(&self) {
        self.delete_partitions();
        shell("partx", &["--add", &self.path()]);
    }

    /// Deletes the partitions. Waits for a partition that a process still has open.
    fn delete_partitions(&self) {
        let directory = PathBuf::from(format!("/sys/block/{}", self.name));
        let partitions = [1, 2].map(|part| directory.join(format!("{}p{part}", self.name)));
        let end = Instant::now() + LONG;
        while partitions.iter().any(|partition| partition.exists()) && Instant::now() < end {
            let _ = Command::new("partx").args(["-d", &self.path()]).output();
        }
    }

    /// Makes the kernel find an error in the mounted ext file system.
    pub(crate) fn provoke_error(&self) {
        let trigger = format!("/sys/fs/ext4/{}/trigger_fs_error", self.name);
        fs::write(trigger, "made by a test").expect("an error");
    }

    /// Returns the options in force for the mounted ext file system, including the default ones.
    pub(crate) fn options_in_force(&self) -> String {
        fs::read_to_string(format!("/proc/fs/ext4/{}/options", self.name)).expect("options")
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        let device = fs::File::options().write(true).open(self.path()).expect("device");
        device.write_all_at(bytes, at).expect("write");
        device.sync_all().expect("sync");
    }

    pub(crate) fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let device = fs::File::open(self.path()).expect("device");
        device.read_exact_at(&mut bytes, at).expect("read");
        bytes
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.node);
        // The kernel does not release a loop device completely while it has partitions.
        self.delete_partitions();
        for part in 1..=2 {
            let _ = fs::remove_file(format!("{}p{part}", self.node.display()));
        }
        let _ = Command::new("losetup").args(["-d", &self.path()]).output();
    }
}

/// Returns the number of the block device at `path`, `7:3`.
pub(super) fn number(path: &str) -> String {
    let number = fs::metadata(path).expect("device").rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    format!("{major}:{minor}")
}

impl Rig {
    /// Attaches an empty disk for a new volume.
    pub(crate) fn new_disk(&self, bytes: u64) -> (VolumeId, Attached) {
        let volume = volume();
        let attached = self.attach(&volume, bytes);
        (volume, attached)
    }

    /// Attaches a disk for a new volume, with a file system that a person made.
    pub(crate) fn made_disk(&self, bytes: u64, fs: FsType) -> (VolumeId, Attached) {
        let (volume, attached) = self.new_disk(bytes);
        make_filesystem(fs, &attached.path());
        (volume, attached)
    }

    /// Attaches an empty disk for a new volume, and stages the volume.
    #[track_caller]
    pub(crate) fn staged_disk(&self, bytes: u64, fs: FsType) -> (VolumeId, Attached) {
        let (volume, attached) = self.new_disk(bytes);
        staged(self.stage(&volume, fs));
        (volume, attached)
    }

    /// Attaches a disk for a new volume, on which the helper has made a file system.
    #[track_caller]
    pub(crate) fn formatted_disk(&self, bytes: u64, fs: FsType) -> (VolumeId, Attached) {
        let (volume, attached) = self.staged_disk(bytes, fs);
        done(self.unstage(&volume));
        (volume, attached)
    }

    pub(crate) fn attach(&self, volume: &VolumeId, bytes: u64) -> Attached {
        let image = self.image(volume);
        let mut options = fs::File::options();
        let file = options.write(true).create(true).truncate(false).open(&image).expect("image");
        file.set_len(bytes).expect("set_len");
        self.attach_image(image)
    }

    /// Attaches a disk for a new volume, with the content that another image has now.
    pub(crate) fn attach_copy(&self, of: &Path) -> (VolumeId, Attached) {
        let volume = volume();
        let attached = self.attach_copy_for(&volume, of);
        (volume, attached)
    }

    pub(crate) fn attach_copy_for(&self, volume: &VolumeId, of: &Path) -> Attached {
        copy_sparse(of, &self.image(volume));
        self.attach_image(self.image(volume))
    }

    /// Detaches a disk, and attaches its image again.
    pub(crate) fn reattach(&self, attached: Attached) -> Attached {
        let image = attached.image.clone();
        drop(attached);
        self.attach_image(image)
    }

    pub(crate) fn image(&self, volume: &VolumeId) -> PathBuf {
        self.path("volumes").join(format!("{volume}.img"))
    }

    pub(crate) fn attach_image(&self, image: PathBuf) -> Attached {
        self.attach_sectors(image, 512)
    }

    /// Attaches a disk with sectors of so many bytes.
    pub(crate) fn attach_sectors(&self, image: PathBuf, sector: u32) -> Attached {
        let sector = format!("--sector-size={sector}");
        let path = shell("losetup", &["--find", "--show", &sector, text(&image)]);
        // A loop device stays read-only when it gets another file, whoever switched it.
        shell("blockdev", &["--setrw", &path]);
        let name = path.trim_start_matches("/dev/").to_owned();
        let node = self.make_node(&name);
        Attached { image, name, node }
    }

    pub(crate) fn make_node(&self, name: &str) -> PathBuf {
        self.make_node_called(name, name)
    }

    pub(super) fn make_node_called(&self, name: &str, called: &str) -> PathBuf {
        let number = number(&format!("/dev/{name}"));
        let (major, minor) = number.split_once(':').expect("two numbers");
        let node = self.path("dev").join(called);
        shell("mknod", &["-m", "0660", text(&node), "b", major, minor]);
        shell("chgrp", &["6", text(&node)]);
        node
    }

    /// Waits until the kernel has found a partition, and makes its node.
    pub(crate) fn node_of_part(&self, attached: &Attached, part: u32) {
        let name = format!("{}p{part}", attached.name);
        let path = format!("/dev/{name}");
        wait_until(|| format!("no {path}"), || Path::new(&path).exists());
        self.make_node(&name);
    }
}
