//! What an unfinished format of this very volume can have left on its disk: nothing, or what the same format writes.
//!
//! The format is made once more, into memory, with the identifier and the time that the record names; mke2fs then writes
//! the same bytes. Each byte of the disk, where either of the two has anything and where a blank disk must be zero, has
//! to be zero or the reference's. One other byte, and somebody else was here.
use super::field::{le16, le32};
use super::{ALIGNMENT, Reader, ext, record};
use ebs_csi_policy::blank;
use rustix::fd::AsFd;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Largest disk whose format is made again in memory, in bytes: its metadata takes about 60 MiB.
pub const LARGEST: u64 = 4 << 40;

/// Bytes compared at a time.
const PIECE: u64 = 64 << 10;

/// Compare `disk`, read directly, with the format in `memory`, a file of the same size.
pub fn explains(disk: impl AsFd, memory: impl AsFd, size: u64) -> Result<bool, Errno> {
    let loose = Loose::of(&memory)?;
    let mut areas = blank::ranges(size);
    areas.extend(written(&memory, size)?);
    areas.extend(record::place(size).map(|place| (place, record::LENGTH as u64)));
    let own_record = record::place(size);
    let mut reader = Reader::new(disk);
    let mut expected = vec![0; usize::try_from(PIECE).unwrap_or(ALIGNMENT)];
    for (start, length) in areas {
        let mut done = 0;
        while done < length {
            let at = start + done;
            let found = reader.read(at, (length - done).min(PIECE))?;
            let expected = &mut expected[..found.len()];
            fill(&memory, at, expected)?;
            for (index, (found, expected)) in found.iter().zip(&*expected).enumerate() {
                let here = at + index as u64;
                let of_the_record = own_record
                    .is_some_and(|place| (place..place + record::LENGTH as u64).contains(&here));
                if *found != 0 && found != expected && !of_the_record && !loose.covers(here) {
                    return Ok(false);
                }
            }
            done += found.len() as u64;
        }
    }
    Ok(true)
}

/// Where the file in memory holds anything: beginning and length, aligned.
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

fn fill(memory: impl AsFd, at: u64, into: &mut [u8]) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < into.len() {
        match rustix::io::pread(&memory, &mut into[filled..], at + filled as u64)? {
            0 => return Err(Errno::IO),
            n => filled += n,
        }
    }
    Ok(())
}

/// Bytes that mke2fs writes more than once: the checksums of the reserved inodes, which it fills one after the other.
#[derive(Debug, Clone, Copy)]
struct Loose {
    table: u64,
    inode: u64,
}

impl Loose {
    /// Inodes before the first one that is free for use (`EXT2_GOOD_OLD_FIRST_INO`).
    const RESERVED: u64 = 11;
    /// Low and high half of an inode's checksum: `l_i_checksum_lo`, `i_checksum_hi`.
    const CHECKSUMS: [std::ops::Range<u64>; 2] = [0x7c..0x7e, 0x82..0x84];

    /// Read from the finished format, which this program has made itself.
    fn of(memory: impl AsFd) -> Result<Self, Errno> {
        let mut head = vec![0; ext::AT + 1024];
        fill(&memory, 0, &mut head)?;
        let superblock = &head[ext::AT..];
        let block = 1024_u64 << le32(superblock, 0x18).min(6);
        // Descriptors begin in the block after the superblock's.
        let descriptors = (u64::from(le32(superblock, 0x14)) + 1) * block;
        let mut descriptor = vec![0; 64];
        fill(&memory, descriptors, &mut descriptor)?;
        Ok(Self {
            table: u64::from(le32(&descriptor, 8)) * block,
            inode: u64::from(le16(superblock, 0x58)).max(128),
        })
    }

    fn covers(&self, at: u64) -> bool {
        at.checked_sub(self.table).is_some_and(|into| {
            into / self.inode < Self::RESERVED
                && Self::CHECKSUMS
                    .iter()
                    .any(|range| range.contains(&(into % self.inode)))
        })
    }
}
