use super::*;
use crate::disk::content::xfs_reference;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;

/// So small that a blank disk of this size has zeros everywhere.
const SIZE: u64 = 256 << 10;
const FAR: u64 = 128 << 10;
/// A disk on which a blank disk may hold something at `FREE`.
const LARGE: u64 = 64 << 20;
const FREE: u64 = (20 << 20) + 8192;
const TABLE: u64 = 40960;
const INODE: u64 = 256;

type Pieces = Vec<(u64, Vec<u8>)>;

/// Returns a disk, or a format in memory: zeros but for the pieces.
fn disk(pieces: &Pieces) -> OwnedFd {
    disk_of(SIZE, pieces)
}

fn disk_of(size: u64, pieces: &Pieces) -> OwnedFd {
    let file = memfd_create("disk", MemfdFlags::CLOEXEC).expect("memfd_create");
    ftruncate(&file, size).expect("ftruncate");
    for (at, bytes) in pieces {
        put(&file, *at, bytes);
    }
    file
}

fn put(file: &OwnedFd, at: u64, bytes: &[u8]) {
    assert_eq!(pwrite(file, bytes, at).expect("pwrite"), bytes.len());
}

fn superblock(first_block: u8, shift: u8, inode: u16) -> Vec<u8> {
    let mut sb = vec![0; 1024];
    sb[0x14] = first_block;
    sb[0x18] = shift;
    sb[0x58..0x5a].copy_from_slice(&inode.to_le_bytes());
    sb
}

/// A format with blocks of 4 KiB: a superblock, a group descriptor, a table of 16 inodes, and
/// 100 KiB further in.
fn format() -> Pieces {
    let mut descriptor = vec![1; 64];
    descriptor[8..12].copy_from_slice(&10_u32.to_le_bytes());
    vec![
        (1024, superblock(0, 2, 256)),
        (4096, descriptor),
        (TABLE, vec![0x11; 16 * 256]),
        (FAR, vec![0x22; 100 << 10]),
    ]
}

fn compare(disk: &OwnedFd, format: &Pieces) -> ComparisonResult {
    explains(disk, tests::disk(format), SIZE).expect("memory can be read")
}

#[test]
fn only_bytes_of_format_are_explained() {
    let format = format();
    assert_eq!(compare(&disk(&format), &format), ComparisonResult::Explained);
    let without_superblock = format[1..].to_vec();
    let disk = disk(&without_superblock);
    assert_eq!(compare(&disk, &format), ComparisonResult::Explained);
    // The first of these is compared because a blank disk has zeros there.
    for at in [
        3000,
        4096 + 63,
        TABLE + 7,
        TABLE - INODE + 0x7c,
        FAR + 70_000,
        FAR + (100 << 10) - 1,
        SIZE - 1,
    ] {
        let mut own = [0];
        read_exact_at(&disk, at, &mut own).expect("read");
        put(&disk, at, &[0x77]);
        let ComparisonResult::Unexplained(Some(witness)) = compare(&disk, &format) else {
            panic!("byte {at}: {:?}", compare(&disk, &format));
        };
        assert_eq!(witness.is_unchanged(&disk), Ok(true), "byte {at}");
        put(&disk, at, &own);
        assert_eq!(witness.is_unchanged(&disk), Ok(false), "byte {at}");
    }
}

#[test]
fn byte_outside_compared_areas_is_not_looked_at() {
    let mut format = format();
    format.push((FREE, vec![0x33; 5000]));
    for (at, explained) in
        [(FREE + (2 << 20), true), (FREE + 4999, false), (32 << 20, false), (LARGE - 1, false)]
    {
        let disk = disk_of(LARGE, &format);
        put(&disk, at, &[0x77]);
        let verdict = explains(disk, disk_of(LARGE, &format), LARGE);
        let found = verdict == Ok(ComparisonResult::Explained);
        assert_eq!(found, explained, "byte {at}: {verdict:?}");
    }
}

/// The second place is in an area that must be blank, too: its bytes count once.
#[test]
fn fewer_than_16_bytes_explain_nothing() {
    for at in [FREE, 8192] {
        for (bytes, verdict) in [
            (0, ComparisonResult::Unexplained(None)),
            (15, ComparisonResult::Unexplained(None)),
            (16, ComparisonResult::Explained),
        ] {
            let disk = disk_of(LARGE, &vec![(at, vec![0x22; bytes])]);
            let memory = disk_of(LARGE, &vec![(at, vec![0x22; 100])]);
            let found = explains(disk, memory, LARGE);
            assert_eq!(found, Ok(verdict), "{bytes} bytes at {at}");
        }
    }
}

#[test]
fn written_area_lengthens_area_that_it_overlaps() {
    let mut expected = blank::ranges(LARGE);
    let (start, length) = expected[1];
    let last = start + length - 4096;
    let memory = disk_of(LARGE, &vec![(last, vec![1; 8192])]);
    expected[1].1 += 4096;
    assert_eq!(written(&memory, LARGE), Ok(vec![(last, 8192)]));
    assert_eq!(areas(memory, LARGE), Ok(expected));
}

#[test]
fn last_piece_ends_with_its_area() {
    let mut pieces = Vec::new();
    let area = [(4096, PIECE as u64 + 4096)];
    compare_pieces(disk(&vec![]), disk(&vec![]), &area, |at, found, expected| {
        pieces.push((at, found.len(), expected.len()));
        true
    })
    .expect("read");
    let second = 4096 + PIECE as u64;
    assert_eq!(pieces, [(4096, PIECE, PIECE), (second, 4096, 4096)]);
}

#[test]
fn only_checksums_of_reserved_inodes_may_differ() {
    for (inode, at, explained) in [
        (0, 0x7b, false),
        (0, 0x7c, true),
        (0, 0x7d, true),
        (0, 0x7e, false),
        (0, 0x81, false),
        (0, 0x82, true),
        (0, 0x83, true),
        (0, 0x84, false),
        (10, 0x7c, true),
        (11, 0x7c, false),
    ] {
        let disk = disk(&format());
        put(&disk, TABLE + inode * INODE + at, &[0x77]);
        let verdict = compare(&disk, &format());
        let found = verdict == ComparisonResult::Explained;
        assert_eq!(found, explained, "inode {inode}, byte {at:#x}: {verdict:?}");
    }
}

#[test]
fn inode_table_is_found_for_each_block_size() {
    for (first_block, shift, inode, table, size) in [
        (0, 2, 256_u16, 40960, 256),
        (1, 0, 128, 10240, 128),
        (0, 1, 0, 20480, 128),
        // The kernel refuses a larger shift than 6.
        (0, 9, 256, 655_360, 256),
    ] {
        let block = 1024 << u64::from(shift).min(6);
        let mut descriptor = vec![0; 64];
        descriptor[8] = 10;
        let format = vec![
            (1024, superblock(first_block, shift, inode)),
            ((u64::from(first_block) + 1) * block, descriptor),
        ];
        let checksums = ReservedChecksums::of(disk(&format)).expect("memory can be read");
        assert_eq!((checksums.table, checksums.inode), (table, size), "shift {shift}");
    }
}

#[test]
fn times_of_disk_stand_where_format_has_times() {
    let time = |seconds: u32| seconds.to_le_bytes().to_vec();
    let now = (1 << 32) + 1_700_000_000;
    let mine = 1_700_000_000_u32;
    let places = [TABLE, TABLE + 8, FAR, FAR + 80_000];
    let memory = disk(&places.iter().map(|at| (*at, time(mine))).collect());
    for (found, expected) in [
        ([0, 0, 0, 0], vec![]),
        ([5, 5, 0, 5], vec![5]),
        ([0, 0, 0, 6], vec![6]),
        ([5, 0, 6, 7], vec![5, 6, 7]),
        ([5, 6, 7, 8], vec![5, 6, 7]),
    ] {
        let mut pieces: Pieces = places.iter().copied().zip(found.map(time)).collect();
        // The format has another number here, so this is no time.
        pieces.push((TABLE + 4, time(9)));
        let times = times(disk(&pieces), &memory, SIZE, now).expect("memory can be read");
        assert_eq!(times, expected, "{found:?}");
    }
}

/// The first superblock that mkfs.xfs writes, with a valid checksum, and one of another geometry.
#[test]
fn format_of_other_geometry_is_incomparable() {
    let made = xfs_reference::tests::superblock(|_| ());
    let other = xfs_reference::tests::superblock(|sb| sb[87] = 9);
    let large = xfs_reference::tests::superblock(|sb| sb[102..104].copy_from_slice(&[16, 0]));
    let blocks = xfs_reference::tests::superblock(|sb| sb[4..8].copy_from_slice(&[0, 0, 8, 0]));
    for (found, format, verdict) in [
        (&made, &made, ComparisonResult::Explained),
        (&other, &made, ComparisonResult::Incomparable),
        (&large, &large, ComparisonResult::Incomparable),
        (&blocks, &blocks, ComparisonResult::Incomparable),
    ] {
        let memory = disk(&vec![(0, format.clone())]);
        let found = disk(&vec![(0, found.clone())]);
        assert_eq!(xfs_reference::explains(found, memory, SIZE), Ok(verdict));
    }
}

/// Without the superblock nothing is known to be unfinished.
#[test]
fn unfinished_xfs_headers_need_unfinished_superblock() {
    let uuid = [7; 16];
    let header = |fill: u8| xfs_reference::tests::header(b"XAGF", Some(8), 64, 216, fill, uuid);
    let made = xfs_reference::tests::superblock(|_| ());
    let unfinished = xfs_reference::tests::superblock(|sb| sb[126] = 1);
    let stranger = xfs_reference::tests::superblock(|sb| {
        sb[126] = 1;
        sb[32] = 8;
    });
    let memory = disk(&vec![(0, made.clone()), (512, header(1))]);
    for (superblock, explained) in [(unfinished, true), (made, false), (stranger, false)] {
        let found = disk(&vec![(0, superblock), (512, header(2))]);
        let verdict = xfs_reference::explains(found, &memory, SIZE).expect("memory can be read");
        assert_eq!(verdict == ComparisonResult::Explained, explained, "{verdict:?}");
    }
    // The superblock and the headers did not reach the disk, some bytes of the format did.
    for (bytes, verdict) in [
        (15, ComparisonResult::Unexplained(None)),
        (16, ComparisonResult::Explained),
        (17, ComparisonResult::Explained),
    ] {
        let made = xfs_reference::tests::superblock(|_| ());
        let memory = disk_of(LARGE, &vec![(0, made), (FREE, vec![3; 64])]);
        let found = disk_of(LARGE, &vec![(FREE, vec![3; bytes])]);
        assert_eq!(xfs_reference::explains(found, memory, LARGE), Ok(verdict));
    }
}

#[test]
fn byte_that_xfs_format_lacks_is_strange() {
    let made = xfs_reference::tests::superblock(|_| ());
    let memory = disk(&vec![(0, made.clone()), (FAR, vec![3; 100_000])]);
    for at in [5000, FAR + 80_000, SIZE - 1] {
        let found = disk(&vec![(0, made.clone()), (at, vec![0x55])]);
        let Ok(ComparisonResult::Unexplained(Some(witness))) =
            xfs_reference::explains(&found, &memory, SIZE)
        else {
            panic!("byte {at} is explained");
        };
        assert_eq!(witness.is_unchanged(&found), Ok(true));
        put(&found, at, &[0x56]);
        assert_eq!(witness.is_unchanged(&found), Ok(false));
    }
}
