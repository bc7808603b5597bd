//! Recognises what is on a disk. Reads a bounded number of fixed places in safe Rust, and allocates
//! nothing by a size that the disk states.
//!
//! [`Content::Blank`] is a proof: every area that could hold something recognisable was read,
//! directly from the disk and without an error, and held only zeros.
mod backup_superblock;
pub mod ext;
mod field;
pub(crate) mod reference;
mod signature;
pub mod xfs;
pub(crate) mod xfs_reference;

pub use field::crc32c;

use crate::sys;
use ebs_csi_policy::blank;
use ebs_csi_policy::facts::Content;
use ebs_csi_wire::{Features, Signature};
use rustix::fd::AsFd;
use rustix::io::Errno;

/// Bytes read at the start of a disk to recognise what it holds; every known first signature lies
/// within.
pub const HEAD: usize = 320 << 10;
/// Bytes read first: both superblocks and the boot area beside them.
pub const FIRST: usize = 8 << 10;
/// Bytes read at the end of a disk to recognise what it holds.
const TAIL: usize = 128 << 10;
/// Alignment of direct reads, in bytes; the largest logical block of any disk.
const ALIGNMENT: usize = 4096;
/// Largest number of bytes read in one call. Each direct read waits for the disk once, whatever its
/// length, so a few long reads prove a disk blank sooner than many short ones. But the kernel has
/// to find and clear each page of the buffer first, which takes longer than reading into the same
/// buffer again.
const PIECE: usize = 512 << 10;

/// Recognises what is on the disk through `disk`, a claimed descriptor opened with `O_DIRECT`, so
/// that the reads see the disk and not the page cache. `now` is in seconds since 1970.
pub fn read_content(disk: impl AsFd, now: u64) -> Result<Content, Errno> {
    read_content_and(disk, now, || ())
}

/// Does the same as [`read_content`], and calls `meanwhile` between two reads as long as nothing
/// was found. The first bytes, in which everything known leaves a trace, show early that the disk
/// seems to be blank; the proof takes longer.
pub fn read_content_and(
    disk: impl AsFd,
    now: u64,
    meanwhile: impl FnMut(),
) -> Result<Content, Errno> {
    let size = sys::block_bytes(&disk).map_err(|e| sys::errno_of(&e))?;
    read_content_within(disk, size, now, meanwhile)
}

/// Does the same as [`read_content_and`] for the first `size` bytes of anything that supports
/// pread(2), a block device or not.
pub fn read_content_within(
    disk: impl AsFd,
    size: u64,
    now: u64,
    mut meanwhile: impl FnMut(),
) -> Result<Content, Errno> {
    // For a disk that was used before, a sound superblock is enough. The rest is read only for
    // other disks, and only these need more than a few pages of memory: to take large buffers away
    // again, the kernel interrupts every processor.
    let mut few = AlignedBuffer::new(FIRST);
    let mut reader = Reader { disk, piece: &mut [] };
    let first = reader.read_into(few.aligned(), 0, size.min(FIRST as u64))?;
    if let Some(content) = recognise(first, now) {
        return Ok(content);
    }
    if first_nonzero(first).is_none() {
        meanwhile();
    }
    let mut memory = AlignedBuffer::new(PIECE);
    reader.piece = memory.aligned();
    let head = reader.read_behind(first, size.min(HEAD as u64))?;
    if let Some(content) = recognise(head, now) {
        return Ok(content);
    }
    let head = ReadArea::of(0, head);
    let end = size.saturating_sub(TAIL as u64) & !(ALIGNMENT as u64 - 1);
    let tail = reader.read(end, size - end)?;
    if let Some(kind) = signature::partition_table_at_end(tail) {
        return Ok(Content::PartitionTable(kind));
    }
    if let Some(kind) = signature::foreign_at_end(tail) {
        return Ok(Content::Foreign(kind));
    }
    let tail = ReadArea::of(end, tail);
    if let Some(at) = first_set(&mut reader, size, &head, &tail, meanwhile)? {
        return Ok(match backup_superblock::find(&mut reader, size)? {
            Some(signature) => Content::Damaged(signature),
            None => Content::Unknown { at },
        });
    }
    Ok(Content::Blank)
}

struct ReadArea {
    /// The area on the disk, in bytes.
    range: std::ops::Range<u64>,
    /// Offset on the disk of the area's first byte that is not zero.
    set: Option<u64>,
}

impl ReadArea {
    fn of(at: u64, bytes: &[u8]) -> Self {
        Self { range: at..at + bytes.len() as u64, set: first_nonzero_at(at, bytes) }
    }
}

/// Returns the offset of the first byte that is not zero in the areas where a blank disk must be
/// zero. `head` and `tail` have been read already and are not read again.
fn first_set(
    reader: &mut Reader<'_, impl AsFd>,
    size: u64,
    head: &ReadArea,
    tail: &ReadArea,
    mut meanwhile: impl FnMut(),
) -> Result<Option<u64>, Errno> {
    if head.set.is_some() {
        return Ok(head.set);
    }
    for (start, length) in blank::ranges(size) {
        meanwhile();
        let from = start.max(head.range.end);
        let to = (start + length).min(tail.range.start);
        if from < to
            && let Some(at) = reader.find(from, to - from, first_nonzero_at)?
        {
            return Ok(Some(at));
        }
    }
    Ok(tail.set)
}

/// Returns the identifier of the file system whose superblock stands among the first bytes of a
/// disk.
pub fn identifier(head: &[u8]) -> Option<[u8; 16]> {
    match (ext::read(head, 0), xfs::read(head)) {
        (Some(facts), None) => Some(facts.uuid),
        (None, Some(facts)) => Some(facts.uuid),
        _ => None,
    }
}

pub(crate) fn features(head: &[u8]) -> Option<Features> {
    ext::features(head).or_else(|| xfs::features(head))
}

/// Reads the first bytes of a disk, for [`identifier`] and [`features`]. The descriptor may be one
/// for direct reads.
pub fn head(disk: impl AsFd) -> Result<Vec<u8>, Errno> {
    let mut buffer = AlignedBuffer::new(FIRST);
    let head = buffer.aligned();
    let length = read_at(&disk, 0, head)?;
    Ok(head[..length].to_vec())
}

/// Reads from offset `at` until `into` is full or nothing follows; returns the number of bytes.
fn read_at(disk: impl AsFd, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < into.len() {
        match rustix::io::pread(&disk, &mut into[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Fills `into` from offset `at`. A short read is an error, because bytes that were not read prove
/// nothing.
fn read_exact_at(disk: impl AsFd, at: u64, into: &mut [u8]) -> Result<(), Errno> {
    if read_at(disk, at, into)? == into.len() { Ok(()) } else { Err(Errno::IO) }
}

/// Recognises content by the first bytes of a disk; returns None when they show nothing known.
pub fn recognise(head: &[u8], now: u64) -> Option<Content> {
    let ext = ext::read(head, now);
    let xfs = xfs::read(head);
    let credible = ext.as_ref().is_some_and(|facts| facts.bytes != 0);
    match (ext, xfs) {
        // A format of either file system overwrites the superblock of the other. When both are
        // sound, nothing tells which one is current.
        (Some(_), Some(xfs)) if credible && xfs.sound => {
            Some(Content::Foreign(Signature::ExtAndXfs))
        }
        (Some(ext), _) if credible => Some(
            find_foreign_in_boot_area(head, ext::AT..ext::AT + 1024).unwrap_or(Content::Ext(ext)),
        ),
        (_, Some(xfs)) => {
            Some(find_foreign_in_boot_area(head, 0..512).unwrap_or(Content::Xfs(xfs)))
        }
        _ if ext::is_journal(head) => Some(Content::Foreign(Signature::ExtJournal)),
        // The ext magic has only two bytes, and the size beside it is invalid: any other
        // explanation of the disk takes precedence.
        (Some(ext), _) => {
            Some(find_foreign(head).unwrap_or(Content::Damaged(ext.level.signature())))
        }
        _ => find_foreign(head),
    }
}

/// Returns a foreign signature in the boot area beside a superblock. The bytes further in hold what
/// the file system's users wrote, and a disk image in a file must not change how its volume is
/// recognised.
fn find_foreign_in_boot_area(head: &[u8], superblock: std::ops::Range<usize>) -> Option<Content> {
    let mut boot = head.get(..4096)?.to_vec();
    boot.get_mut(superblock)?.fill(0);
    find_foreign(&boot)
}

fn find_foreign(bytes: &[u8]) -> Option<Content> {
    if let Some(kind) = signature::foreign(bytes) {
        return Some(Content::Foreign(kind));
    }
    signature::partition_table(bytes).map(Content::PartitionTable)
}

fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    const NOTHING: [u8; 4096] = [0; 4096];
    // Comparing slices runs at the speed of memory; comparing single bytes does not.
    let chunk = bytes.chunks(NOTHING.len()).position(|chunk| chunk != &NOTHING[..chunk.len()])?;
    let start = chunk * NOTHING.len();
    let within = bytes[start..].iter().position(|byte| *byte != 0)?;
    Some(start + within)
}

/// Does the same for bytes that were read from offset `at`, and returns the offset.
fn first_nonzero_at(at: u64, bytes: &[u8]) -> Option<u64> {
    Some(at + first_nonzero(bytes)? as u64)
}

/// A buffer that is aligned for direct reads.
struct AlignedBuffer {
    all: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    fn new(length: usize) -> Self {
        let all = vec![0; length + ALIGNMENT];
        let start = all.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { all, start }
    }

    fn aligned(&mut self) -> &mut [u8] {
        let end = self.all.len() - ALIGNMENT + self.start;
        &mut self.all[self.start..end]
    }
}

/// Reads a disk at aligned offsets.
struct Reader<'m, D> {
    disk: D,
    piece: &'m mut [u8],
}

impl<D: AsFd> Reader<'_, D> {
    /// Reads `length` bytes into the beginning of `area`.
    fn read_into<'a>(&self, area: &'a mut [u8], at: u64, length: u64) -> Result<&'a [u8], Errno> {
        let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
        let area = area.get_mut(..length).ok_or(Errno::INVAL)?;
        read_exact_at(&self.disk, at, area)?;
        Ok(area)
    }

    fn read(&mut self, at: u64, length: u64) -> Result<&[u8], Errno> {
        let piece = std::mem::take(&mut self.piece);
        let read = self.read_into(piece, at, length.min(piece.len() as u64)).map(<[u8]>::len);
        self.piece = piece;
        Ok(&self.piece[..read?])
    }

    /// Reads the first bytes of the disk up to `end`, and copies the part that `first` holds
    /// already.
    fn read_behind(&mut self, first: &[u8], end: u64) -> Result<&[u8], Errno> {
        let piece = std::mem::take(&mut self.piece);
        let (there, rest) = piece.split_at_mut(first.len());
        there.copy_from_slice(first);
        let read =
            self.read_into(rest, first.len() as u64, end - first.len() as u64).map(<[u8]>::len);
        self.piece = piece;
        Ok(&self.piece[..first.len() + read?])
    }

    /// Passes `length` bytes from `at` to `look`, piece by piece with the offset, until `look`
    /// returns something.
    fn find<T>(
        &mut self,
        at: u64,
        length: u64,
        look: impl Fn(u64, &[u8]) -> Option<T>,
    ) -> Result<Option<T>, Errno> {
        let mut done = 0;
        while done < length {
            let piece = self.read(at + done, length - done)?;
            let found = look(at + done, piece);
            if found.is_some() {
                return Ok(found);
            }
            done += piece.len() as u64;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
