//! Decides whether a disk holds the remains of an unfinished format of the same volume: only zeros
//! and bytes that the same format writes.
//!
//! The format is made once more, into memory, with the identifier that every format of the volume
//! gets. mke2fs then writes the same bytes except for the time, and the time is read from the disk
//! where it has one. The comparison covers the areas that the format in memory has written and the
//! areas where a blank disk must be zero. In these areas each byte of the disk must be zero or
//! equal to the reference's byte; any other byte shows that somebody else has written to the disk.
//! Excepted are the checksums of the reserved inodes, which mke2fs writes more than once.
use super::ext;
use super::field::{crc32c, le16, le32};
use crate::disk::device::opener_messages::{ComparisonResult, Witness};
use crate::disk::direct_read::{ALIGNMENT, AlignedBuffer, Reader, read_exact_at};
use ebs_csi_policy::blank;
use rustix::fd::AsFd;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Largest number of times that are tried as the time of the format. One format uses one time.
const TIMES: usize = 3;

/// Least number of bytes that must agree. Fewer could come from anybody, and no write of a format
/// has so few.
pub(super) const LEAST: usize = 16;

const PIECE: usize = 64 << 10;

impl Witness {
    pub(super) fn of(at: u64, found: &[u8]) -> Self {
        Self { at, length: found.len() as u64, checksum: crc32c(!0, found) }
    }

    /// Returns whether the piece is unchanged on `disk`, which is read directly.
    pub(crate) fn is_unchanged(&self, disk: impl AsFd) -> Result<bool, Errno> {
        let mut memory = AlignedBuffer::new(PIECE);
        let piece = memory.aligned();
        let found = Reader { disk, piece: &mut [] }.read_into(piece, self.at, self.length)?;
        Ok(crc32c(!0, found) == self.checksum)
    }
}

/// Compares `disk`, which is read directly, with the format in `memory`, a file of the same size.
pub(crate) fn explains(
    disk: impl AsFd,
    memory: impl AsFd,
    size: u64,
) -> Result<ComparisonResult, Errno> {
    let checksums = ReservedChecksums::of(&memory)?;
    let areas = areas(&memory, size)?;
    let (mut witness, mut set) = (None, 0);
    compare_pieces(disk, memory, &areas, |at, found, expected| {
        set += found.iter().filter(|byte| **byte != 0).count();
        let all = found.iter().zip(expected).enumerate().all(|(index, pair)| {
            *pair.0 == 0 || pair.0 == pair.1 || checksums.covers(at + index as u64)
        });
        if !all {
            witness = Some(Witness::of(at, found));
        }
        all
    })?;
    Ok(if witness.is_none() && set >= LEAST {
        ComparisonResult::Explained
    } else {
        ComparisonResult::Unexplained(witness)
    })
}

/// Returns the areas that are compared, offset and length: those that the format in `memory` has
/// written, and those where a blank disk must be zero. No byte is in two areas, because each counts
/// once towards [`LEAST`].
pub(super) fn areas(memory: impl AsFd, size: u64) -> Result<Vec<(u64, u64)>, Errno> {
    let mut areas = blank::ranges(size);
    areas.extend(written(memory, size)?);
    areas.sort_unstable();
    areas.dedup_by(|next, kept| {
        let end = kept.0 + kept.1;
        let overlaps = next.0 <= end;
        if overlaps {
            kept.1 = end.max(next.0 + next.1) - kept.0;
        }
        overlaps
    });
    Ok(areas)
}

/// Returns the times that the disk has at the places where the format in `memory`, made at `time`,
/// has `time`. All are in seconds since 1970.
pub(crate) fn times(
    disk: impl AsFd,
    memory: impl AsFd,
    size: u64,
    time: u64,
) -> Result<Vec<u64>, Errno> {
    let areas = written(&memory, size)?;
    let mut times = Vec::new();
    compare_pieces(disk, memory, &areas, |_, found, expected| {
        // In all structures of ext, times have 32 bits and are aligned.
        for at in (0..found.len()).step_by(4) {
            let there = u64::from(le32(found, at));
            let is_time = u64::from(le32(expected, at)) == time & 0xffff_ffff;
            if is_time && there != 0 && !times.contains(&there) {
                times.push(there);
            }
        }
        times.len() < TIMES
    })?;
    times.truncate(TIMES);
    Ok(times)
}

/// Passes both contents to `look`, piece by piece with the offset, until `look` returns false.
pub(super) fn compare_pieces(
    disk: impl AsFd,
    memory: impl AsFd,
    areas: &[(u64, u64)],
    mut look: impl FnMut(u64, &[u8], &[u8]) -> bool,
) -> Result<(), Errno> {
    let mut own = AlignedBuffer::new(PIECE);
    let piece = own.aligned();
    let mut reader = Reader { disk, piece };
    let mut expected = vec![0; PIECE];
    for (start, length) in areas {
        let mut done = 0;
        while done < *length {
            let found = reader.read(start + done, (length - done).min(PIECE as u64))?;
            let expected = &mut expected[..found.len()];
            read_exact_at(&memory, start + done, expected)?;
            if !look(start + done, found, expected) {
                return Ok(());
            }
            done += found.len() as u64;
        }
    }
    Ok(())
}

/// Returns the areas that hold data in the file in memory: offset and length, with aligned offsets.
fn written(memory: impl AsFd, size: u64) -> Result<Vec<(u64, u64)>, Errno> {
    let mut areas = Vec::new();
    let mut at = 0;
    loop {
        let start = match seek(&memory, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(areas),
            Err(e) => return Err(e),
        };
        at = seek(&memory, SeekFrom::Hole(start))?;
        let start = start / ALIGNMENT as u64 * ALIGNMENT as u64;
        areas.push((start, at.min(size) - start));
    }
}

/// The bytes that mke2fs writes more than once with different values: the checksums of the reserved
/// inodes, which it fills one after the other.
#[derive(Debug, Clone, Copy)]
struct ReservedChecksums {
    table: u64,
    inode: u64,
}

impl ReservedChecksums {
    /// Number of inodes before the first one that is free for use (`EXT2_GOOD_OLD_FIRST_INO`).
    const RESERVED: u64 = 11;
    /// Low and high half of an inode's checksum: `l_i_checksum_lo`, `i_checksum_hi`.
    const CHECKSUMS: [std::ops::Range<u64>; 2] = [0x7c..0x7e, 0x82..0x84];

    /// Reads the inode table's position from the finished format, which this program has made
    /// itself.
    fn of(memory: impl AsFd) -> Result<Self, Errno> {
        let mut head = vec![0; ext::AT + 1024];
        read_exact_at(&memory, 0, &mut head)?;
        let superblock = &head[ext::AT..];
        let block = 1024_u64 << le32(superblock, 0x18).min(6);
        // The group descriptors begin in the block after the superblock's.
        let descriptors = (u64::from(le32(superblock, 0x14)) + 1) * block;
        let mut descriptor = vec![0; 64];
        read_exact_at(&memory, descriptors, &mut descriptor)?;
        Ok(Self {
            table: u64::from(le32(&descriptor, 8)) * block,
            inode: u64::from(le16(superblock, 0x58)).max(128),
        })
    }

    fn covers(&self, at: u64) -> bool {
        at.checked_sub(self.table).is_some_and(|into| {
            into / self.inode < Self::RESERVED
                && Self::CHECKSUMS.iter().any(|range| range.contains(&(into % self.inode)))
        })
    }
}

#[cfg(test)]
#[path = "tests/reference.rs"]
mod tests;
