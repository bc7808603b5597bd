//! Searches the areas where a blank disk must be zero for a byte that is not.
//!
//! Each direct read waits for the disk once, on EBS for half a millisecond or more, and the areas
//! need more than eighty reads. The opener, which may have threads, therefore makes 21 reads at
//! a time.
use super::direct_read::{AlignedBuffer, first_nonzero, read_exact_at};
use crate::lock;
use ebs_csi_confine::ThreadStarts;
use ebs_csi_policy::blank;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Number of threads that read beside the one that searches.
const READERS: usize = 20;

/// Length of the longest of these reads, in bytes: the most that EBS counts as one request to a
/// volume on SSDs. The buffers of all readers take 5 MiB while a disk is searched.
const PIECE: u64 = 256 << 10;

/// Returns the parts of the areas of a disk of `size` bytes that lie within `within`, in ascending
/// order, cut into pieces of at most `piece` bytes.
fn pieces(size: u64, within: &Range<u64>, piece: u64) -> impl Iterator<Item = Range<u64>> {
    let (first, end) = (within.start, within.end);
    blank::ranges(size).into_iter().flat_map(move |(start, length)| {
        let (from, to) = (start.max(first), (start + length).min(end));
        let starts = (from..to.max(from)).step_by(usize::try_from(piece).unwrap_or(usize::MAX));
        starts.map(move |at| at..(at + piece).min(to))
    })
}

/// Returns the offset of the first byte that is not zero in the areas of a disk of `size` bytes
/// that lie within `within`. Makes one read after the other.
pub(super) fn search(
    disk: impl AsFd,
    size: u64,
    within: &Range<u64>,
) -> Result<Option<u64>, Errno> {
    let mut buffer = AlignedBuffer::new(PIECE as usize);
    for piece in pieces(size, within, PIECE) {
        if let Some(at) = search_piece(&disk, &mut buffer, &piece)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn search_piece(
    disk: impl AsFd,
    buffer: &mut AlignedBuffer,
    piece: &Range<u64>,
) -> Result<Option<u64>, Errno> {
    let length = usize::try_from(piece.end - piece.start).map_err(|_| Errno::INVAL)?;
    let bytes = buffer.aligned().get_mut(..length).ok_or(Errno::INVAL)?;
    read_exact_at(disk, piece.start, bytes)?;
    Ok(first_nonzero(bytes).map(|at| piece.start + at as u64))
}

/// One piece to read, of a disk that stays open until the last of its pieces is read.
struct Job {
    disk: Arc<OwnedFd>,
    piece: Range<u64>,
    progress: Arc<Progress>,
}

/// The state of one search.
#[derive(Default)]
struct Progress {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Pieces that are not read yet.
    left: usize,
    /// The start of the first piece that says something else than zeros, and what it says.
    found: Option<(u64, Result<u64, Errno>)>,
}

/// The threads that read, which all searches share.
#[derive(Clone)]
pub(crate) struct Readers(Arc<Queue>);

#[derive(Default)]
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    arrived: Condvar,
}

impl Readers {
    /// Starts the threads. They end with the process.
    pub(crate) fn start(starts: &ThreadStarts) -> io::Result<Self> {
        let queue = Arc::<Queue>::default();
        for _ in 0..READERS {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            starts.spawn(thread, move || queue.read())?;
        }
        Ok(Self(queue))
    }

    /// Does the same as [`search`]; the calling thread reads, too, so that a search goes on while
    /// the others wait for a disk that does not answer. When this function returns, no other thread
    /// has a descriptor of the disk.
    pub(crate) fn search(
        &self,
        disk: &Arc<OwnedFd>,
        size: u64,
        within: &Range<u64>,
    ) -> Result<Option<u64>, Errno> {
        let progress = Arc::<Progress>::default();
        let jobs: Vec<Job> = pieces(size, within, PIECE)
            .map(|piece| Job { disk: Arc::clone(disk), piece, progress: Arc::clone(&progress) })
            .collect();
        lock(&progress.state).left = jobs.len();
        lock(&self.0.jobs).extend(jobs);
        self.0.arrived.notify_all();
        let mut buffer = None;
        loop {
            let mut waiting = lock(&self.0.jobs);
            let own = waiting.iter().position(|job| Arc::ptr_eq(&job.progress, &progress));
            let Some(job) = own.and_then(|index| waiting.remove(index)) else { break };
            drop(waiting);
            job.carry_out(&mut buffer);
        }
        let mut state = lock(&progress.state);
        while state.left > 0 {
            state = progress.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.found.take().map(|(_, found)| found).transpose()
    }
}

impl Queue {
    fn read(&self) {
        let mut buffer = None;
        loop {
            let mut jobs = lock(&self.jobs);
            let job = loop {
                if let Some(job) = jobs.pop_front() {
                    break job;
                }
                // A reader without work holds no memory.
                buffer = None;
                jobs = self.arrived.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            };
            drop(jobs);
            job.carry_out(&mut buffer);
        }
    }
}

impl Job {
    fn carry_out(self, buffer: &mut Option<AlignedBuffer>) {
        let Self { disk, piece, progress } = self;
        let start = piece.start;
        // A piece behind one that is not zero changes nothing.
        let is_wanted = lock(&progress.state).found.is_none_or(|(first, _)| start < first);
        let found = if is_wanted {
            let buffer = buffer.get_or_insert_with(|| AlignedBuffer::new(PIECE as usize));
            search_piece(&disk, buffer, &piece).transpose()
        } else {
            None
        };
        // Whoever waits may rely on it that no descriptor is left.
        drop(disk);
        let mut state = lock(&progress.state);
        if let Some(found) = found
            && state.found.is_none_or(|(first, _)| start < first)
        {
            state.found = Some((start, found));
        }
        state.left -= 1;
        if state.left == 0 {
            progress.ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::io::{Seek, SeekFrom, Write};

    const SIZE: u64 = 64 << 20;

    fn disk(length: u64, set: &[u64]) -> OwnedFd {
        let mut file = tempfile::tempfile().expect("a file");
        file.set_len(length).expect("its length");
        for at in set {
            file.seek(SeekFrom::Start(*at)).expect("seek");
            file.write_all(&[1]).expect("write");
        }
        file.into()
    }

    #[test]
    fn pieces_cover_areas_and_nothing_else() {
        for size in [0, 512, 4096, 1 << 20, SIZE + 512, 1 << 40] {
            for within in [0..size, 320 << 10..size.saturating_sub(128 << 10)] {
                let covered = |at: u64, pieces: &[Range<u64>]| {
                    pieces.iter().filter(|piece| piece.contains(&at)).count()
                };
                let found: Vec<_> = pieces(size, &within, PIECE).collect();
                assert!(found.iter().all(|piece| piece.end - piece.start <= PIECE));
                for (start, length) in blank::ranges(size) {
                    for at in [start, start + length / 2, start + length - 1] {
                        let wanted = usize::from(within.contains(&at));
                        assert_eq!(covered(at, &found), wanted, "{size} {within:?} {at}");
                    }
                }
                let areas = blank::ranges(size);
                let areas: Vec<_> = areas.iter().map(|(at, length)| *at..at + length).collect();
                for at in found.iter().flat_map(|piece| [piece.start, piece.end - 1]) {
                    assert_eq!(covered(at, &areas), 1, "{size} {within:?} {at}");
                }
            }
        }
    }

    /// A claim ends with its last descriptor; a lock of flock(2) does, too.
    #[test]
    fn finished_search_holds_no_descriptor() {
        let readers = Readers::start(&ThreadStarts::default()).expect("threads");
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(SIZE).expect("its length");
        for _ in 0..50 {
            let locked: OwnedFd = file.reopen().expect("the file").into();
            flock(&locked, FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
            assert_eq!(readers.search(&Arc::new(locked), SIZE, &(0..SIZE)), Ok(None));
        }
    }

    /// The threads find what one read after the other finds.
    #[test]
    fn parallel_search_finds_first_set_byte() {
        let readers = Readers::start(&ThreadStarts::default()).expect("threads");
        let rows: [(u64, &[u64]); 7] = [
            (SIZE, &[]),
            (SIZE, &[0]),
            (SIZE, &[SIZE - 1]),
            (SIZE, &[32 << 20, 1 << 20]),
            (SIZE, &[(1 << 20) + 7, (1 << 20) + 6, 63 << 20]),
            // Not in an area.
            (SIZE, &[(20 << 20) + 4096]),
            // Shorter than its size, which is an error unless an earlier byte is set.
            (SIZE / 2, &[]),
        ];
        for (length, set) in rows {
            for within in [0..SIZE, 4096..SIZE - 4096] {
                let disk = disk(length, set);
                let expected = search(&disk, SIZE, &within);
                assert_eq!(
                    readers.search(&Arc::new(disk), SIZE, &within),
                    expected,
                    "{length} {set:?}"
                );
            }
        }
        let both = disk(SIZE / 2, &[1 << 20]);
        assert_eq!(readers.search(&Arc::new(both), SIZE, &(0..SIZE)), Ok(Some(1 << 20)));
    }

    #[test]
    fn pieces_in_any_order_show_first_byte() {
        let disk = Arc::new(disk(SIZE, &[0, 1 << 20]));
        for order in [[0, 1 << 20], [1 << 20, 0]] {
            let progress = Arc::<Progress>::default();
            lock(&progress.state).left = order.len();
            for start in order {
                let (disk, progress) = (Arc::clone(&disk), Arc::clone(&progress));
                Job { disk, piece: start..start + PIECE, progress }.carry_out(&mut None);
            }
            assert_eq!(lock(&progress.state).found, Some((0, Ok(0))), "{order:?}");
        }
    }

    #[test]
    fn readers_carry_out_what_waits() {
        let readers = Readers::start(&ThreadStarts::default()).expect("threads");
        let progress = Arc::<Progress>::default();
        lock(&progress.state).left = 1;
        let disk = Arc::new(disk(SIZE, &[7]));
        lock(&readers.0.jobs).push_back(Job {
            disk,
            piece: 0..PIECE,
            progress: Arc::clone(&progress),
        });
        readers.0.arrived.notify_all();
        let waiting = progress.ended.wait_while(lock(&progress.state), |state| state.left > 0);
        assert_eq!(waiting.expect("the state").found, Some((0, Ok(7))));
    }

    #[test]
    fn concurrent_searches_share_the_readers() {
        let readers = Readers::start(&ThreadStarts::default()).expect("threads");
        std::thread::scope(|scope| {
            for at in [None, Some(0), Some(1 << 20), Some(SIZE - 1)] {
                let readers = readers.clone();
                scope.spawn(move || {
                    for _ in 0..20 {
                        let disk = disk(SIZE, at.as_slice());
                        assert_eq!(readers.search(&Arc::new(disk), SIZE, &(0..SIZE)), Ok(at));
                    }
                });
            }
        });
    }
}
