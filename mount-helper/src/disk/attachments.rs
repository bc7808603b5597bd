//! What is remembered of disks for as long as they stay attached: in this process, or in a file
//! that outlives it. A disk is identified by the sequence number of its attachment (`diskseq`) and
//! its device number.
use crate::disk::device::{Attachment, Device, DeviceError, DiskRoots};
use crate::disk::filesystem_identifier;
use crate::disk::record_file::{self, RecordFile, beside};
use crate::lock;
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_wire::VolumeId;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Largest number of attachments that are kept. A node sees fewer between two starts of its helper;
/// beyond this number the oldest are forgotten.
pub(crate) const MOST: usize = 4096;

#[derive(Debug)]
pub(crate) struct Attachments<T>(Mutex<BTreeMap<Attachment, T>>);

impl<T> Default for Attachments<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Attachments<T> {
    /// Stores `what` for the attachment and replaces an earlier value.
    pub(crate) fn insert(&self, attachment: Attachment, what: T) {
        let mut stored = self.lock();
        stored.insert(attachment, what);
        if stored.len() > MOST {
            stored.pop_first();
        }
    }

    pub(crate) fn has(&self, attachment: Attachment) -> bool {
        self.lock().contains_key(&attachment)
    }

    /// Locks the map and returns all that is stored.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<Attachment, T>> {
        lock(&self.0)
    }
}

/// The disks and partitions that a checker has examined in full, and those that were published raw.
/// A new helper remembers nothing, and examines the disks again.
#[derive(Debug, Default)]
pub(crate) struct ExaminedDisks {
    sound: Attachments<()>,
    raw: Attachments<()>,
}

impl ExaminedDisks {
    /// Notes that the device was examined and that no error was left.
    pub(crate) fn add(&self, device: &Device) {
        self.sound.insert(device.attachment(), ());
    }

    /// Notes that the device can be written to other than through a file system.
    pub(crate) fn note_raw_use(&self, device: &Device) {
        self.forget(device.sequence());
        self.raw.insert(device.attachment(), ());
    }

    /// Returns whether the device, or one that shares bytes with it, was published raw since it was
    /// attached.
    pub(crate) fn was_used_raw(&self, device: &Device) -> bool {
        self.raw.lock().keys().any(|(sequence, number)| {
            let (own, whole) = (device.number(), device.whole());
            *sequence == device.sequence() && (*number == own || *number == whole || own == whole)
        })
    }

    fn forget(&self, sequence: u64) {
        self.sound.lock().retain(|(of, _), ()| *of != sequence);
    }

    pub(crate) fn has(&self, device: &Device) -> bool {
        self.sound.has(device.attachment())
    }
}

/// The disks and partitions that this helper has mounted. When a file system of such a disk is
/// still alive in another mount namespace, then through a copy of this helper's mount, and the
/// helper may handle it as one. A file system that somebody else mounted belongs to them.
#[derive(Debug, Default)]
pub(crate) struct MountedDisks(Attachments<()>);

impl MountedDisks {
    /// Notes that the device is mounted at a place of this helper.
    pub(crate) fn add(&self, sequence: u64, number: DeviceNumber) {
        self.0.insert((sequence, number), ());
    }

    /// Returns whether the device was mounted since this helper started.
    pub(crate) fn has(&self, sequence: u64, number: DeviceNumber) -> bool {
        self.0.has((sequence, number))
    }

    /// Returns whether the device was mounted since this helper started, or holds a file system
    /// that this driver made for the volume, which an earlier helper may have mounted.
    pub(crate) fn is_own_mount(
        &self,
        disks: &DiskRoots,
        device: &Device,
        volume: &VolumeId,
    ) -> Result<bool, DeviceError> {
        if self.has(device.sequence(), device.number()) {
            return Ok(true);
        }
        let identifier = disks.first_facts(device)?.identifier;
        Ok(identifier == Some(filesystem_identifier::identifier(volume)))
    }
}

/// Size in bytes beyond which the file is shortened to the entries that still count.
const LONG: usize = 1 << 20;

/// The disks that this driver itself switched to read-only and therefore has to switch back. A disk
/// that somebody else switched (`blockdev --setro`) stays read-only.
///
/// The record is a file ([`crate::disk::record_file`]) with an entry for each switch in either
/// direction. An entry is written before a disk becomes read-only and after it is writable again.
#[derive(Debug, Default)]
pub(crate) struct ReadOnlyRecord {
    record: Option<RecordFile>,
    boot: String,
    /// Whether no earlier helper of this boot has kept a record.
    first: bool,
    known: Mutex<BTreeSet<Attachment>>,
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
        let (mut disks, mut first) = (BTreeSet::new(), true);
        let record = RecordFile::open(path, boot, LONG, "read-only-forgotten", |text| {
            first = !text.lines().any(|line| line.starts_with(boot));
            disks = parse(text, boot);
            disks.retain(|(sequence, number)| still_there(*sequence, *number));
            lines(boot, &disks)
        });
        Self { record, boot: boot.to_owned(), first, known: Mutex::new(disks) }
    }

    /// Returns the record's files.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.record.iter().flat_map(RecordFile::descriptors)
    }

    /// Returns whether no record of an earlier helper was found.
    pub(crate) fn is_first(&self) -> bool {
        self.first
    }

    /// Returns whether this driver switched the disk to read-only.
    pub(crate) fn has(&self, disk: Attachment) -> bool {
        lock(&self.known).contains(&disk)
    }

    /// Notes that the disk is about to become read-only.
    pub(crate) fn add(&self, disk: Attachment) -> Result<(), Errno> {
        let mut known = lock(&self.known);
        if !known.contains(&disk) {
            self.write(&known, &line(&self.boot, '+', disk))?;
            known.insert(disk);
        }
        Ok(())
    }

    /// Notes that the disk is writable again.
    pub(crate) fn remove(&self, disk: Attachment) -> Result<(), Errno> {
        let mut known = lock(&self.known);
        if known.remove(&disk) {
            self.write(&known, &line(&self.boot, '-', disk))?;
        }
        Ok(())
    }

    fn write(&self, known: &BTreeSet<Attachment>, text: &str) -> Result<(), Errno> {
        let Some(record) = &self.record else { return Ok(()) };
        record.append(text, || lines(&self.boot, known))
    }
}

fn lines(boot: &str, disks: &BTreeSet<Attachment>) -> String {
    disks.iter().map(|disk| line(boot, '+', *disk)).collect()
}

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

    #[test]
    fn examined_disks_are_known_until_forgotten_or_evicted() {
        let attached = |sequence| (sequence, DeviceNumber(7));
        let examined = ExaminedDisks::default();
        for sequence in 0..MOST as u64 + 1 {
            examined.sound.insert(attached(sequence), ());
        }
        assert!(!examined.sound.has(attached(0)) && examined.sound.has(attached(1)));
        examined.forget(1);
        assert!(!examined.sound.has(attached(1)));
        assert_eq!(examined.sound.lock().len(), MOST - 1);
    }

    #[test]
    fn full_mounted_list_drops_oldest_disk() {
        let (disk, other) = (DeviceNumber(7), DeviceNumber(8));
        let mounted = MountedDisks::default();
        for sequence in 0..MOST as u64 + 1 {
            mounted.add(sequence, disk);
        }
        assert!(!mounted.has(0, disk) && mounted.has(1, disk) && !mounted.has(1, other));
    }

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
            first.add(disk(sequence, number)).expect("note");
        }
        first.remove(disk(2, 7)).expect("note");
        first.remove(disk(9, 9)).expect("nothing to forget");
        drop(first);
        let again = open("boot-1");
        assert!(!again.is_first());
        let known: Vec<_> = lock(&again.known).iter().copied().collect();
        assert_eq!(known, [disk(1, 7), disk(3, 8)]);
        drop(again);
        let booted = open("boot-2");
        assert!(booted.is_first() && lock(&booted.known).is_empty());
    }

    #[test]
    fn record_file_stays_bounded_and_keeps_entries() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("switched");
        let switched = ReadOnlyRecord::open(&path, "boot", |_, _| true);
        switched.add(disk(1, 1)).expect("note");
        for n in 0..60_000 {
            switched.add(disk(2, n)).expect("note");
            switched.remove(disk(2, n)).expect("note");
        }
        assert!(std::fs::metadata(&path).expect("file").len() < 2 * LONG as u64);
        drop(switched);
        let again = ReadOnlyRecord::open(&path, "boot", |_, _| true);
        assert_eq!(lock(&again.known).iter().copied().collect::<Vec<_>>(), [disk(1, 1)]);
    }
}
