//! The disks that this driver itself switched to read-only and therefore has to switch back. A disk
//! that somebody else switched (`blockdev --setro`) stays read-only.
//!
//! A disk is identified by the sequence number of its attachment (`diskseq`) and its device number.
//! The record is a file ([`crate::disk::record_file`]) with an entry for each switch in either
//! direction. An entry is written before a disk becomes read-only and after it is writable again.
use crate::disk::device::{Attachment, Device};
use crate::disk::record_file::{self, append, beside, read, replace};
use crate::journal;
use ebs_csi_policy::facts::DeviceNumber;
use rustix::fd::OwnedFd;
use rustix::fs::ftruncate;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size in bytes beyond which the file is started anew with the entries that still count.
const LONG: usize = 1 << 20;

/// The record of switched disks.
#[derive(Debug, Default)]
pub(crate) struct ReadOnlyRecord {
    file: Option<OwnedFd>,
    boot: String,
    /// Whether no earlier helper of this boot has kept a record.
    first: bool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    disks: BTreeSet<Attachment>,
    written: usize,
}

impl ReadOnlyRecord {
    /// Returns the path of the file for a helper that listens at a socket.
    pub(crate) fn path_beside(socket: &Path) -> PathBuf {
        beside(socket, ".read-only")
    }

    /// Reads the record that an earlier helper of this boot left, drops the disks (sequence and
    /// number) that are not `still_there`, and continues the record. When the file cannot be
    /// written, the record ends with the process.
    pub(crate) fn open(
        path: &Path,
        boot: &str,
        still_there: impl Fn(u64, DeviceNumber) -> bool,
    ) -> Self {
        let found = read(path);
        let mut disks = found.as_ref().map_or_else(|_| BTreeSet::new(), |text| parse(text, boot));
        disks.retain(|(sequence, number)| still_there(*sequence, *number));
        let text: String = disks.iter().map(|disk| line(boot, '+', *disk)).collect();
        let file = replace(path, &text);
        for why in found.as_ref().err().into_iter().chain(file.as_ref().err()) {
            if *why != Errno::NOENT {
                let path = path.display().to_string();
                journal::warn("read-only-forgotten", &[("file", &path), ("why", &why.to_string())]);
            }
        }
        Self {
            file: file.ok(),
            boot: boot.to_owned(),
            first: !found.is_ok_and(|text| text.lines().any(|line| line.starts_with(boot))),
            known: Mutex::new(Known { disks, written: text.len() }),
        }
    }

    /// Returns whether no record of an earlier helper was found.
    pub(crate) fn is_first(&self) -> bool {
        self.first
    }

    /// Returns whether this driver switched the disk to read-only.
    pub(crate) fn has(&self, device: &Device) -> bool {
        self.known().disks.contains(&device.attachment())
    }

    /// Notes that the disk is about to become read-only.
    pub(crate) fn add(&self, device: &Device) -> Result<(), Errno> {
        self.insert(device.attachment())
    }

    /// Does the same as [`Self::add`] by sequence and number.
    pub(crate) fn insert(&self, disk: Attachment) -> Result<(), Errno> {
        let mut known = self.known();
        if known.disks.contains(&disk) {
            return Ok(());
        }
        if known.written > LONG
            && let Some(file) = &self.file
        {
            ftruncate(file, 0)?;
            known.written = 0;
            let text: String =
                known.disks.iter().map(|disk| line(&self.boot, '+', *disk)).collect();
            self.write(&mut known, &text)?;
        }
        self.write(&mut known, &line(&self.boot, '+', disk))?;
        known.disks.insert(disk);
        Ok(())
    }

    /// Notes that the disk is writable again.
    pub(crate) fn remove(&self, device: &Device) -> Result<(), Errno> {
        self.forget(device.attachment())
    }

    fn forget(&self, disk: Attachment) -> Result<(), Errno> {
        let mut known = self.known();
        if known.disks.remove(&disk) {
            self.write(&mut known, &line(&self.boot, '-', disk))?;
        }
        Ok(())
    }

    fn write(&self, known: &mut Known, text: &str) -> Result<(), Errno> {
        known.written += text.len();
        match &self.file {
            Some(file) if !text.is_empty() => append(file, text),
            _ => Ok(()),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats an entry.
fn line(boot: &str, direction: char, (sequence, number): Attachment) -> String {
    record_file::line(boot, &format!("{direction} {sequence} {}", number.0))
}

fn parse(text: &str, boot: &str) -> BTreeSet<Attachment> {
    let mut disks = BTreeSet::new();
    for [direction, sequence, number] in record_file::entries(text, boot) {
        let (Ok(sequence), Ok(number)) = (sequence.parse(), number.parse()) else {
            continue;
        };
        let disk = (sequence, DeviceNumber(number));
        match direction {
            "+" => disks.insert(disk),
            "-" => disks.remove(&disk),
            _ => continue,
        };
    }
    disks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(sequence: u64, number: u64) -> Attachment {
        (sequence, DeviceNumber(number))
    }

    #[test]
    fn read_only_disk_record_survives_restart_not_reboot() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = ReadOnlyRecord::path_beside(&directory.path().join("helper.sock"));
        let open = |boot| ReadOnlyRecord::open(&path, boot, |sequence, _| sequence != 5);
        let first = open("boot-1");
        assert!(first.is_first());
        for (sequence, number) in [(1, 7), (2, 7), (5, 7), (3, 8)] {
            first.insert(disk(sequence, number)).expect("note");
        }
        first.forget(disk(2, 7)).expect("note");
        first.forget(disk(9, 9)).expect("nothing to forget");
        drop(first);
        let again = open("boot-1");
        assert!(!again.is_first());
        let known: Vec<_> = again.known().disks.iter().copied().collect();
        assert_eq!(known, [disk(1, 7), disk(3, 8)]);
        drop(again);
        let booted = open("boot-2");
        assert!(booted.is_first() && booted.known().disks.is_empty());
    }

    #[test]
    fn record_file_stays_bounded_and_keeps_entries() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("switched");
        let switched = ReadOnlyRecord::open(&path, "boot", |_, _| true);
        switched.insert(disk(1, 1)).expect("note");
        for n in 0..60_000 {
            switched.insert(disk(2, n)).expect("note");
            switched.forget(disk(2, n)).expect("note");
        }
        assert!(std::fs::metadata(&path).expect("file").len() < 2 * LONG as u64);
        drop(switched);
        let again = ReadOnlyRecord::open(&path, "boot", |_, _| true);
        assert_eq!(again.known().disks.iter().copied().collect::<Vec<_>>(), [disk(1, 1)]);
    }
}
