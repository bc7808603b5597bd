//! The promises that this node made: volumes that it neither stages nor publishes before their
//! detach. A promise is about one attachment, and counts in this boot alone. It stands for a minute
//! after it was last asked for, also across a restart of this process.
use crate::disk::record_file::{self, RecordFile, beside};
use crate::{journal, lock};
use ebs_csi_wire::{AttachedAt, VolumeId};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// How long a promise stands after it was last asked for.
const STANDS: Duration = Duration::from_secs(60);
/// How long it is shown. A detach that rests on it is sent, and takes effect, in less than the
/// rest.
const SHOWN: Duration = Duration::from_secs(30);
/// Largest number of promises. A node has fewer volumes.
const MOST: usize = 512;
/// Size in bytes beyond which the file is shortened to the promises that stand.
const LONG: usize = 1 << 16;
/// In the file, instead of a disk's number: the promise has ended.
const ENDED: &str = "-";

/// What a promise is about. The annotation lists an attachment for a while after its detach, so two
/// of one volume may stand.
type Key = (VolumeId, AttachedAt);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Promise {
    /// The kernel's number of the disk's attachment when the promise was made; 0 when no disk was
    /// there. When it is asked for again, the volume may have been attached anew.
    sequence: u64,
    /// When it was last asked for, since the boot.
    asked: Duration,
}

/// The promises, and the record beside the socket that keeps them.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    record: Option<RecordFile>,
    boot: String,
    known: Mutex<Known>,
}

type Known = BTreeMap<Key, Promise>;

impl Promises {
    /// Returns the path of the file for a helper that listens at a socket.
    pub(crate) fn path_beside(socket: &Path) -> PathBuf {
        beside(socket, ".promises")
    }

    /// Continues the record of an earlier helper of this boot. Without a file no promise is made.
    pub(crate) fn open(path: &Path, boot: &str) -> Self {
        let asked = now();
        let mut promises = Known::new();
        let record = RecordFile::open(path, boot, LONG, "promises-not-kept", |text| {
            promises = parse(text, boot, asked);
            lines(boot, &promises)
        });
        Self { record, boot: boot.to_owned(), known: Mutex::new(promises) }
    }

    /// Returns the record's files.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.record.iter().flat_map(RecordFile::descriptors)
    }

    /// Records the promise, or that it is asked for again. Returns whether it is new. The caller
    /// has looked, under the volume's lock, that nothing uses the volume.
    pub(crate) fn make(
        &self,
        asked: Duration,
        volume: &VolumeId,
        attached_at: &AttachedAt,
        sequence: u64,
    ) -> Result<bool, Errno> {
        if self.record.is_none() {
            return Err(Errno::ROFS);
        }
        let mut known = lock(&self.known);
        self.end_old(&mut known, asked)?;
        let key = (volume.clone(), attached_at.clone());
        if let Some(promise) = known.get_mut(&key) {
            promise.asked = asked;
            return Ok(false);
        }
        if known.len() >= MOST {
            return Err(Errno::NOSPC);
        }
        let promise = Promise { sequence, asked };
        self.write(&known, &line(&self.boot, &key, &promise.sequence.to_string()))?;
        known.insert(key, promise);
        Ok(true)
    }

    /// Returns whether a promise is shown for this attachment; `None` stands for any.
    pub(crate) fn is_shown(
        &self,
        at: Duration,
        volume: &VolumeId,
        attached_at: Option<&AttachedAt>,
    ) -> bool {
        lock(&self.known).iter().any(|((of, time), promise)| {
            of == volume
                && attached_at.is_none_or(|attached_at| attached_at == time)
                && at.saturating_sub(promise.asked) < SHOWN
        })
    }

    /// Returns whether a promise forbids to use the disk with this sequence number, which the
    /// request says was attached at that time. Another attachment of the volume is free.
    pub(crate) fn forbids(
        &self,
        at: Duration,
        volume: &VolumeId,
        attached_at: Option<&AttachedAt>,
        sequence: u64,
    ) -> Result<bool, Errno> {
        let mut known = lock(&self.known);
        self.end_old(&mut known, at)?;
        Ok(known.iter().any(|((of, time), promise)| {
            of == volume
                && match attached_at {
                    Some(attached_at) => attached_at == time || promise.sequence == sequence,
                    // Nothing tells this attachment from one without a number.
                    None => promise.sequence == 0 || promise.sequence == sequence,
                }
        }))
    }

    /// Ends the promises that nobody has asked for again. What has ended does not come back with
    /// the next helper.
    fn end_old(&self, known: &mut Known, at: Duration) -> Result<(), Errno> {
        let ended: Vec<Key> = known
            .iter()
            .filter(|(_, promise)| at.saturating_sub(promise.asked) >= STANDS)
            .map(|(key, _)| key.clone())
            .collect();
        for key in ended {
            self.write(known, &line(&self.boot, &key, ENDED))?;
            known.remove(&key);
            let facts = [("volume", key.0.as_str()), ("attached", key.1.as_str())];
            journal::info("promise-ended", &facts);
        }
        Ok(())
    }

    fn write(&self, known: &Known, text: &str) -> Result<(), Errno> {
        let Some(record) = &self.record else { return Ok(()) };
        record.append(text, || lines(&self.boot, known))?;
        record.sync()
    }
}

/// Returns the time since the boot, with the time in which the machine slept.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let whole = Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or(0));
    whole + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

fn line(boot: &str, (volume, attached_at): &Key, sequence: &str) -> String {
    record_file::line(boot, &format!("{volume} {attached_at} {sequence}"))
}

fn lines(boot: &str, promises: &Known) -> String {
    let line = |(key, promise): (&Key, &Promise)| line(boot, key, &promise.sequence.to_string());
    promises.iter().map(line).collect()
}

fn parse(text: &str, boot: &str, asked: Duration) -> Known {
    let mut promises = BTreeMap::new();
    for [volume, attached_at, sequence] in record_file::entries(text, boot) {
        let (Ok(volume), Ok(attached_at)) =
            (VolumeId::parse(volume), AttachedAt::parse(attached_at))
        else {
            continue;
        };
        let key = (volume, attached_at);
        match sequence.parse() {
            Ok(sequence) => promises.insert(key, Promise { sequence, asked }),
            Err(_) => promises.remove(&key),
        };
    }
    promises
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn volume() -> VolumeId {
        VolumeId::parse("vol-0123456789abcdef0").expect("an id")
    }

    fn attached(seconds: u32) -> AttachedAt {
        AttachedAt::parse(&format!("2026-01-01T00:00:{seconds:02}Z")).expect("a time")
    }

    fn kept() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = Promises::path_beside(&directory.path().join("helper.sock"));
        (directory, path)
    }

    #[test]
    fn promise_binds_its_attachment_by_time_or_number() {
        let (_directory, path) = kept();
        let promises = Promises::open(&path, "boot");
        assert_eq!(promises.make(now(), &volume(), &attached(1), 7), Ok(true));
        // Asked for again while the volume, attached anew, is not in use yet.
        assert_eq!(promises.make(now(), &volume(), &attached(1), 8), Ok(false));
        let (same, later) = (attached(1), attached(2));
        let assert_rows = |rows: &[(Option<&AttachedAt>, u64, bool)]| {
            for (time, sequence, forbidden) in rows {
                let found = promises.forbids(now(), &volume(), *time, *sequence);
                assert_eq!(found, Ok(*forbidden), "{time:?} {sequence}");
            }
        };
        let same_is_bound = [(Some(&same), 7, true), (Some(&same), 8, true), (None, 7, true)];
        assert_rows(&same_is_bound);
        assert_rows(&[(Some(&later), 7, true), (Some(&later), 8, false), (None, 8, false)]);
        assert!(promises.is_shown(now(), &volume(), Some(&same)));
        assert!(!promises.is_shown(now(), &volume(), Some(&later)));
        // A promise about the next attachment, here without a disk, leaves the former as it is.
        assert_eq!(promises.make(now(), &volume(), &later, 0), Ok(true));
        assert_rows(&same_is_bound);
        assert_rows(&[(Some(&later), 8, true), (None, 9, true), (Some(&attached(3)), 8, false)]);
    }

    #[test]
    fn promise_survives_restart_and_ends_with_boot() {
        let (_directory, path) = kept();
        let promises = Promises::open(&path, "boot-1");
        assert_eq!(promises.make(now(), &volume(), &attached(1), 7), Ok(true));
        drop(promises);
        let again = Promises::open(&path, "boot-1");
        assert_eq!(again.forbids(now(), &volume(), Some(&attached(1)), 9), Ok(true));
        assert!(again.is_shown(now(), &volume(), Some(&attached(1))));
        drop(again);
        let booted = Promises::open(&path, "boot-2");
        assert_eq!(booted.forbids(now(), &volume(), Some(&attached(1)), 7), Ok(false));
    }

    #[test]
    fn promise_nobody_asks_for_ends_for_good() {
        let (_directory, path) = kept();
        let promises = Promises::open(&path, "boot");
        let made = Duration::from_secs(1000);
        let time = attached(1);
        assert_eq!(promises.make(made, &volume(), &time, 7), Ok(true));
        let is_shown = |after| promises.is_shown(made + after, &volume(), Some(&time));
        let forbids = |after| promises.forbids(made + after, &volume(), Some(&time), 7);
        assert!(is_shown(29 * SECOND) && !is_shown(30 * SECOND));
        assert_eq!(forbids(59 * SECOND), Ok(true));
        assert_eq!(promises.make(made + 50 * SECOND, &volume(), &time, 7), Ok(false));
        assert_eq!(forbids(109 * SECOND), Ok(true), "asked for again");
        assert_eq!(forbids(110 * SECOND), Ok(false));
        drop(promises);
        let again = Promises::open(&path, "boot");
        assert_eq!(again.forbids(now(), &volume(), Some(&time), 7), Ok(false));
    }

    #[test]
    fn without_a_file_no_promise_is_made() {
        let promises = Promises::open(Path::new("/nowhere/promises"), "boot");
        assert_eq!(promises.make(now(), &volume(), &attached(1), 7), Err(Errno::ROFS));
        assert!(!promises.is_shown(now(), &volume(), None));
    }

    #[test]
    fn promise_file_stays_bounded_and_keeps_promises() {
        let (_directory, path) = kept();
        let promises = Promises::open(&path, "boot");
        let other = VolumeId::parse("vol-1a2b3c4d").expect("an id");
        assert_eq!(promises.make(now(), &other, &attached(9), 3), Ok(true));
        for sequence in 1..3000 {
            let made = Duration::from_secs(60 * sequence);
            assert!(promises.make(made, &other, &attached(9), 3).is_ok());
            assert_eq!(promises.make(made, &volume(), &attached(1), sequence), Ok(true));
        }
        assert!(std::fs::metadata(&path).expect("file").len() < 2 * LONG as u64);
        drop(promises);
        let again = Promises::open(&path, "boot");
        assert_eq!(again.forbids(now(), &other, Some(&attached(9)), 3), Ok(true));
    }
}
