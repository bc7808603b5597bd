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

use crate::disk::area_search;
use crate::disk::device::opener_messages::FirstFacts;
use crate::disk::direct_read::{ALIGNMENT, AlignedBuffer, Reader, first_nonzero, read_at};
use crate::sys;
use ebs_csi_policy::facts::Content;
use ebs_csi_wire::Signature;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::ops::Range;

/// Bytes read at the start of a disk to recognise what it holds; every known first signature lies
/// within.
pub const HEAD: usize = 320 << 10;
/// Bytes read first: both superblocks and the boot area beside them.
pub const FIRST: usize = 8 << 10;
/// Bytes read at the end of a disk to recognise what it holds.
const TAIL: usize = 128 << 10;
/// Length of the buffer for the head and the tail, and for the search for backups of superblocks.
const PIECE: usize = 512 << 10;

/// Recognises what is on the disk through `disk`, a claimed descriptor with `O_DIRECT`, so that the
/// reads see the disk and not the page cache. `now` is in seconds since 1970. `search` looks for a
/// byte that is not zero in the areas where a blank disk must be zero: those of a disk of so many
/// bytes that lie within a range. The first bytes, in which everything known leaves a trace, show
/// early that the disk seems to be blank: then `seems_blank` is called, and the areas are searched
/// before anything else is read.
pub(crate) fn recognise_disk(
    disk: impl AsFd,
    now: u64,
    seems_blank: impl FnOnce(),
    search: impl FnOnce(u64, Range<u64>) -> Result<Option<u64>, Errno>,
) -> Result<Content, Errno> {
    let size = sys::block_bytes(&disk).map_err(|e| sys::errno_of(&e))?;
    recognise_or_search(disk, size, now, seems_blank, search)
}

/// Recognises what the first `size` bytes of anything that supports pread(2) hold, block device or
/// not, with one read after the other.
pub fn read_content_within(disk: impl AsFd, size: u64, now: u64) -> Result<Content, Errno> {
    let search = |size, within| area_search::search(&disk, size, &within);
    recognise_or_search(&disk, size, now, || (), search)
}

fn recognise_or_search(
    disk: impl AsFd,
    size: u64,
    now: u64,
    seems_blank: impl FnOnce(),
    search: impl FnOnce(u64, Range<u64>) -> Result<Option<u64>, Errno>,
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
    let mut set = None;
    if first_nonzero(first).is_none() {
        seems_blank();
        set = search(size, first.len() as u64..size)?;
        // The areas begin and end with the disk, so that there is nothing left to recognise.
        if set.is_none() {
            return Ok(Content::Blank);
        }
    }
    let mut memory = AlignedBuffer::new(PIECE);
    reader.piece = memory.aligned();
    let head = reader.read_behind(first, size.min(HEAD as u64))?;
    if let Some(content) = recognise(head, now) {
        return Ok(content);
    }
    let at = first_nonzero(head).map(|at| at as u64).or(set).ok_or(Errno::IO)?;
    let end = size.saturating_sub(TAIL as u64) & !(ALIGNMENT as u64 - 1);
    let tail = reader.read(end, size - end)?;
    if let Some(kind) = signature::partition_table_at_end(tail) {
        return Ok(Content::PartitionTable(kind));
    }
    if let Some(kind) = signature::foreign_at_end(tail) {
        return Ok(Content::Foreign(kind));
    }
    Ok(match backup_superblock::find(&mut reader, size)? {
        Some(signature) => Content::Damaged(signature),
        None => Content::Unknown { at },
    })
}

/// Reads the first bytes of a disk. The descriptor may be one for direct reads.
pub(crate) fn first_facts(disk: impl AsFd) -> Result<FirstFacts, Errno> {
    let mut buffer = AlignedBuffer::new(FIRST);
    let head = buffer.aligned();
    let length = read_at(&disk, 0, head)?;
    let head = &head[..length];
    let ext = ext::read(head, 0);
    let identifier = match (&ext, xfs::read(head)) {
        (Some(facts), None) => Some(facts.uuid),
        (None, Some(facts)) => Some(facts.uuid),
        _ => None,
    };
    let features = ext::features(head).or_else(|| xfs::features(head));
    Ok(FirstFacts { identifier, features, ext })
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
fn find_foreign_in_boot_area(head: &[u8], superblock: Range<usize>) -> Option<Content> {
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

#[cfg(test)]
mod tests;
