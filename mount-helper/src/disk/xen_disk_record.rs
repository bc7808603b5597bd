//! Which volume each disk without a serial was taken for.
//!
//! Such a disk does not show which volume it is, and most requests name no device. What a request
//! with a device name has established is remembered by the sequence number of the disk (`diskseq`),
//! which the kernel gives to each attachment once: an entry can become useless but never wrong.
//!
//! The record is a file ([`crate::disk::record_file`]), which is opened before the process confines
//! itself, and afterwards only appended to. When the file is lost, nothing counts as proved.
use crate::disk::device::opener_messages::{KnownDisk, Remembered, XenDisk};
use crate::disk::record_file::{self, append, beside, read, replace};
use crate::{journal, lock};
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_wire::VolumeId;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[derive(Debug, Default)]
pub(crate) struct XenDiskRecord {
    file: Option<OwnedFd>,
    boot: String,
    entries: Mutex<BTreeMap<XenDisk, VolumeId>>,
}

impl XenDiskRecord {
    /// Returns the path of the file for a helper that listens at a socket.
    pub(crate) fn path_beside(socket: &Path) -> PathBuf {
        beside(socket, ".disks")
    }

    /// Reads the record that an earlier helper of this boot left, drops the disks that are not
    /// `still_there`, and continues the record. A file that somebody else could have written counts
    /// as missing.
    pub(crate) fn open(
        path: &Path,
        boot: &str,
        still_there: impl Fn(&XenDisk) -> bool,
    ) -> Result<Self, Errno> {
        let mut entries = match read(path) {
            Ok(text) => parse(&text, boot),
            Err(Errno::NOENT) => BTreeMap::new(),
            Err(why) => {
                let path = path.display().to_string();
                journal::warn("disks-forgotten", &[("file", &path), ("why", &why.to_string())]);
                BTreeMap::new()
            }
        };
        entries.retain(|disk, _| still_there(disk));
        let text: String = entries.iter().map(|(disk, volume)| line(boot, disk, volume)).collect();
        let file = replace(path, &text)?;
        Ok(Self { file: Some(file), boot: boot.to_owned(), entries: Mutex::new(entries) })
    }

    /// Returns the descriptor of the file.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn volume_of(&self, disk: &XenDisk) -> Option<VolumeId> {
        lock(&self.entries).get(disk).cloned()
    }

    /// Returns the disks that were taken for a volume, or for any, the latest first. Some may be
    /// gone.
    pub(crate) fn disks_of(&self, volume: Option<&VolumeId>) -> Vec<KnownDisk> {
        let entries = lock(&self.entries);
        let of_it = entries.iter().rev().filter(|(_, of)| volume.is_none_or(|one| one == *of));
        of_it.map(|(disk, of)| KnownDisk { disk: *disk, volume: Some(of.clone()) }).collect()
    }

    /// Records that a disk is taken for a volume. The file is written before the entry counts.
    pub(crate) fn add(&self, disk: XenDisk, volume: &VolumeId) -> Result<Remembered, Errno> {
        let mut entries = lock(&self.entries);
        match entries.get(&disk) {
            Some(known) if known == volume => return Ok(Remembered::Before),
            Some(_) => return Ok(Remembered::AsAnother),
            None => {}
        }
        append(self.file.as_ref().ok_or(Errno::BADF)?, &line(&self.boot, &disk, volume))?;
        entries.insert(disk, volume.clone());
        Ok(Remembered::Now)
    }
}

/// Returns the kernel's identifier of this boot. The error contains the path of the file.
pub(crate) fn boot() -> Result<String, (String, io::Error)> {
    let path = "/proc/sys/kernel/random/boot_id";
    let boot = std::fs::read_to_string(path).map_err(|why| (path.to_owned(), why))?;
    Ok(boot.trim().to_owned())
}

fn line(boot: &str, disk: &XenDisk, volume: &VolumeId) -> String {
    record_file::line(boot, &format!("{} {} {volume}", disk.sequence, disk.number.0))
}

fn parse(text: &str, boot: &str) -> BTreeMap<XenDisk, VolumeId> {
    let entry = |[sequence, number, volume]: [&str; 3]| {
        let number = DeviceNumber(number.parse().ok()?);
        let disk = XenDisk { sequence: sequence.parse().ok()?, number };
        Some((disk, VolumeId::parse(volume).ok()?))
    };
    record_file::entries(text, boot).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn disk(sequence: u64) -> XenDisk {
        XenDisk { sequence, number: DeviceNumber(7) }
    }

    fn known(sequence: u64, of: u8) -> KnownDisk {
        KnownDisk { disk: disk(sequence), volume: Some(volume(of)) }
    }

    fn volume(digit: u8) -> VolumeId {
        VolumeId::parse(&format!("vol-0123456789abcdef{digit}")).expect("an id")
    }

    #[test]
    fn taken_disks_survive_restart_not_reboot_or_detach() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = XenDiskRecord::path_beside(&directory.path().join("helper.sock"));
        let first = XenDiskRecord::open(&path, "boot-1", |_| true).expect("open");
        for (sequence, of) in [(1, 1), (2, 2), (5, 1)] {
            assert_eq!(first.add(disk(sequence), &volume(of)), Ok(Remembered::Now));
        }
        assert_eq!(first.add(disk(1), &volume(1)), Ok(Remembered::Before));
        assert_eq!(first.add(disk(1), &volume(2)), Ok(Remembered::AsAnother));
        assert_eq!(first.disks_of(Some(&volume(1))), [known(5, 1), known(1, 1)]);
        drop(first);
        let again = XenDiskRecord::open(&path, "boot-1", |disk| disk.sequence != 5).expect("open");
        assert_eq!(again.disks_of(None), [known(2, 2), known(1, 1)]);
        drop(again);
        // The record of the disk that was gone does not come back.
        let third = XenDiskRecord::open(&path, "boot-1", |_| true).expect("open");
        assert_eq!(third.volume_of(&disk(5)), None);
        drop(third);
        let booted = XenDiskRecord::open(&path, "boot-2", |_| true).expect("open");
        assert_eq!(booted.disks_of(None), []);
    }

    #[test]
    fn half_written_lines_are_ignored_without_harming_others() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("disks");
        let taken = XenDiskRecord::open(&path, "boot", |_| true).expect("open");
        let whole = line("boot", &disk(3), &volume(3));
        for length in 0..whole.len() - 1 {
            append(taken.file.as_ref().expect("file"), &whole[..length]).expect("write");
        }
        assert_eq!(taken.add(disk(4), &volume(4)), Ok(Remembered::Now));
        drop(taken);
        let taken = XenDiskRecord::open(&path, "boot", |_| true).expect("open");
        assert_eq!(taken.disks_of(None), [known(4, 4)]);
    }

    /// Another process may have written such a file, so the helper replaces the file with an empty
    /// one.
    #[test]
    fn group_writable_or_linked_record_file_is_rejected() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("disks");
        let text = line("boot", &disk(1), &volume(1));
        let make = |mode: u32| {
            fs::write(&path, &text).expect("write");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        };
        make(0o600);
        assert_eq!(read(&path), Ok(text.clone()));
        make(0o620);
        assert_eq!(read(&path), Err(Errno::PERM));
        let linked = directory.path().join("linked");
        make(0o600);
        fs::hard_link(&path, &linked).expect("link");
        assert_eq!(read(&path), Err(Errno::PERM));
        fs::remove_file(&path).expect("remove");
        std::os::unix::fs::symlink(&linked, &path).expect("symlink");
        assert_eq!(read(&path), Err(Errno::LOOP));
        // The helper replaces such a file.
        let taken = XenDiskRecord::open(&path, "boot", |_| true).expect("open");
        assert_eq!(taken.disks_of(None), []);
        assert_eq!(read(&path), Ok(String::new()));
    }

    #[test]
    fn disk_is_not_recorded_without_record_file() {
        let none = XenDiskRecord::default();
        assert_eq!(none.add(disk(1), &volume(1)), Err(Errno::BADF));
        assert_eq!(none.volume_of(&disk(1)), None);
    }
}
