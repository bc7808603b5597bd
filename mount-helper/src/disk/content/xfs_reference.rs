//! Decides whether a disk holds the remains of an unfinished `mkfs.xfs` of the same volume, by
//! comparison with the same format made in memory.
//!
//! mkfs.xfs first writes a superblock that says "in progress" and at the end another one; no kernel
//! mounts a file system with the first. In between, mkfs.xfs writes the headers of each allocation
//! group more than once. A sector that is neither zero nor equal to the finished format's must
//! therefore be the same structure, at the same place, with this volume's identifier and a valid
//! checksum: beneath such a superblock only this format writes that. When the superblock itself did
//! not reach the disk, only times may differ.
use super::field::{be16, be32, be64, id};
use super::reference::{LEAST, areas, compare_pieces};
use super::xfs::{self, has_valid_checksum};
use crate::disk::device::opener_messages::{ComparisonResult, Witness};
use crate::disk::direct_read::read_exact_at;
use rustix::fd::AsFd;
use rustix::io::Errno;

const SECTOR: usize = 512;
const BLOCK: usize = 4096;

/// Compares `disk`, which is read directly, with the format in `memory`, a file of the same size.
pub(crate) fn explains(
    disk: impl AsFd,
    memory: impl AsFd,
    size: u64,
) -> Result<ComparisonResult, Errno> {
    let mut made = vec![0; BLOCK];
    read_exact_at(&memory, 0, &mut made)?;
    let mut layout = Layout::of(&made);
    if layout.sector != SECTOR || layout.block != BLOCK {
        return Ok(ComparisonResult::Incomparable);
    }
    let (mut witness, mut set, mut comparable) = (None, 0, true);
    compare_pieces(disk, &memory, &areas(&memory, size)?, |at, found, expected| {
        if at == 0
            && let Some(facts) = xfs::read(found)
        {
            layout.unfinished = facts.sound && facts.in_progress && facts.uuid == layout.uuid;
            comparable = Layout::of(found).same_geometry(&layout);
        }
        set += found.iter().filter(|byte| **byte != 0).count();
        let all = layout.explains(at, found, expected);
        if !all {
            witness = Some(Witness::of(at, found));
        }
        all && comparable
    })?;
    Ok(if !comparable {
        ComparisonResult::Incomparable
    } else if witness.is_none() && set >= LEAST {
        ComparisonResult::Explained
    } else {
        ComparisonResult::Unexplained(witness)
    })
}

/// The geometry that a format's superblock states, and whether the superblock on the disk says "in
/// progress".
#[derive(Debug, Clone)]
struct Layout {
    uuid: [u8; 16],
    block: usize,
    sector: usize,
    inode: usize,
    /// Blocks, blocks of a group, groups, start and length of the log.
    numbers: [u64; 5],
    unfinished: bool,
}

impl Layout {
    fn of(superblock: &[u8]) -> Self {
        let size = |number: u32| usize::try_from(number).unwrap_or(0);
        Self {
            uuid: id(superblock, 32),
            block: size(be32(superblock, 4)),
            sector: usize::from(be16(superblock, 102)),
            inode: usize::from(be16(superblock, 104)),
            numbers: [
                be64(superblock, 8),
                be32(superblock, 84).into(),
                be32(superblock, 88).into(),
                be64(superblock, 48),
                be32(superblock, 96).into(),
            ],
            unfinished: false,
        }
    }

    fn same_geometry(&self, other: &Self) -> bool {
        (self.block, self.sector, self.inode, self.numbers)
            == (other.block, other.sector, other.inode, other.numbers)
    }

    /// Returns whether this format can have written all of `found`. Both slices begin at a block
    /// boundary of the disk.
    fn explains(&self, at: u64, found: &[u8], expected: &[u8]) -> bool {
        let pairs = found.chunks(SECTOR).zip(expected.chunks(SECTOR));
        pairs.enumerate().all(|(index, (there, made))| {
            there == made || {
                let start = index * SECTOR;
                there.iter().zip(made).all(|(a, b)| *a == 0 || a == b)
                    || self.is_same_inode(found, expected, start)
                    || (self.unfinished && is_same_header(there, made, self.uuid))
                    || (self.unfinished && self.is_same_node(at, found, expected, start))
            }
        })
    }

    /// Returns whether the sector at `within` belongs to a root inode (of the root directory or of
    /// the real-time section) that was made at another time.
    fn is_same_inode(&self, found: &[u8], expected: &[u8], within: usize) -> bool {
        /// Offsets of the times of access, modification and change, of the checksum, and of the
        /// creation time (`xfs_dinode`).
        const OF_TIME: [std::ops::Range<usize>; 3] = [32..56, 100..104, 144..152];
        let size = self.inode.clamp(256, 2048);
        let start = within / size * size;
        let (Some(there), Some(made)) =
            (found.get(start..start + size), expected.get(start..start + size))
        else {
            return false;
        };
        let same = |index: usize| {
            there[index] == made[index]
                || there[index] == 0
                || OF_TIME.iter().any(|range| range.contains(&index))
        };
        made.starts_with(b"IN") && (0..size).all(same) && has_valid_checksum(there, 100)
    }

    /// Returns whether the sector at `within` belongs to a node of the same B-tree of free space or
    /// inodes.
    fn is_same_node(&self, at: u64, found: &[u8], expected: &[u8], within: usize) -> bool {
        let start = within / BLOCK * BLOCK;
        let (Some(there), Some(made)) =
            (found.get(start..start + BLOCK), expected.get(start..start + BLOCK))
        else {
            return false;
        };
        let kinds: [&[u8]; 6] = [b"AB3B", b"AB3C", b"IAB3", b"FIB3", b"RMB3", b"R3FC"];
        kinds.iter().any(|kind| made.starts_with(kind))
            && there[..4] == made[..4]
            // The node's place on the disk, in sectors, and its allocation group.
            && be64(there, 16) == (at + start as u64) / SECTOR as u64
            && be32(there, 48) == be32(made, 48)
            && id(there, 32) == self.uuid
            && has_valid_checksum(there, 52)
    }
}

/// Returns whether `there` is the superblock or a header of an allocation group from before its
/// last write.
fn is_same_header(there: &[u8], made: &[u8], uuid: [u8; 16]) -> bool {
    // Magic; offsets of the group's number, of the identifier and of the checksum.
    let kinds: [(&[u8], Option<usize>, usize, usize); 4] = [
        (b"XFSB", None, 32, 224),
        (b"XAGF", Some(8), 64, 216),
        (b"XAGI", Some(8), 296, 312),
        (b"XAFL", Some(4), 8, 32),
    ];
    kinds.iter().any(|(magic, group, identifier, checksum)| {
        made.starts_with(magic)
            && there.starts_with(magic)
            && group.is_none_or(|at| be32(there, at) == be32(made, at))
            && id(there, *identifier) == uuid
            && has_valid_checksum(there, *checksum)
    })
}

#[cfg(test)]
#[path = "tests/xfs_reference.rs"]
pub(super) mod tests;
