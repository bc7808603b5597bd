use super::*;
use ebs_csi_policy::blank;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::cell::Cell;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = [7; 16];

type Pieces<'p> = &'p [(u64, &'p [u8])];

/// Returns a disk in memory: zeros but for the pieces.
fn disk(size: u64, pieces: Pieces<'_>) -> OwnedFd {
    let memory = memfd_create("disk", MemfdFlags::CLOEXEC).expect("memfd_create");
    ftruncate(&memory, size).expect("ftruncate");
    let file = std::fs::File::from(memory);
    for (at, bytes) in pieces {
        file.write_all_at(bytes, *at).expect("write");
    }
    file.into()
}

/// The superblock of an ext2 with this number of blocks of 4 KiB, in this group.
fn ext(blocks: u8, group: u8) -> Vec<u8> {
    let mut sb = vec![0; 1024];
    sb[4] = blocks;
    sb[0x18] = 2;
    sb[0x38..0x3b].copy_from_slice(&[0x53, 0xef, 1]);
    sb[0x5a] = group;
    sb[0x68..0x78].copy_from_slice(&UUID);
    sb
}

fn xfs(block: u16) -> Vec<u8> {
    let mut sb = vec![0; 512];
    sb[..4].copy_from_slice(b"XFSB");
    sb[6..8].copy_from_slice(&block.to_be_bytes());
    sb[15] = 100;
    sb[32..48].copy_from_slice(&UUID);
    sb[101..103].copy_from_slice(&[4, 2]);
    sb
}

#[test]
fn disk_is_recognised_wherever_something_stands() {
    let (backup, group_3) = (ext(100, 1), ext(100, 3));
    let (sound, unsound) = (xfs(4096), xfs(0));
    let stray: (u64, &[u8]) = (3000, &[1]);
    let unknown = |at| Content::Unknown { at };
    let damaged = Content::Damaged;
    let rows: &[(u64, Pieces<'_>, Content)] = &[
        (0, &[], Content::Blank),
        (512, &[], Content::Blank),
        (FIRST as u64, &[], Content::Blank),
        (HEAD as u64 + 512, &[], Content::Blank),
        (64 * MIB + 512, &[], Content::Blank),
        (512, &[(511, &[1])], unknown(511)),
        (64 * MIB, &[stray], unknown(3000)),
        (64 * MIB, &[(FIRST as u64, &[1])], unknown(FIRST as u64)),
        (64 * MIB, &[(HEAD as u64 - 1, &[1])], unknown(HEAD as u64 - 1)),
        (64 * MIB, &[(HEAD as u64, &[1])], unknown(HEAD as u64)),
        (64 * MIB, &[(MIB + 7, &[1])], unknown(MIB + 7)),
        (64 * MIB, &[(32 * MIB, &[1])], unknown(32 * MIB)),
        (64 * MIB, &[(63 * MIB + 5, &[1])], unknown(63 * MIB + 5)),
        (64 * MIB, &[(64 * MIB - 70_000, &[1])], unknown(64 * MIB - 70_000)),
        (64 * MIB + 512, &[(64 * MIB + 511, &[1])], unknown(64 * MIB + 511)),
        (64 * MIB, &[(20 * MIB + 4096, &[1])], Content::Blank),
        (64 * MIB, &[(0, b"LUKS\xba\xbe")], Content::Foreign(Signature::Luks)),
        (64 * MIB, &[(32769, b"CD001")], Content::Foreign(Signature::Iso9660)),
        (64 * MIB, &[(64 * MIB - 8192, b"\xfc\x4e\x2b\xa9")], Content::Foreign(Signature::Md)),
        (64 * MIB, &[(64 * MIB - 512, b"EFI PART")], Content::PartitionTable(Signature::Gpt)),
        // Backups, beside something that no signature explains.
        (64 * MIB, &[stray, (8 * MIB + 1024, &backup)], damaged(Signature::Ext2)),
        (64 * MIB, &[stray, (32 * MIB, &backup)], damaged(Signature::Ext2)),
        (129 * MIB, &[stray, (128 * MIB, &backup)], damaged(Signature::Ext2)),
        (8 * MIB + 4096, &[stray, (8 * MIB + 1024, &backup)], damaged(Signature::Ext2)),
        (8 * MIB + 3584, &[stray, (8 * MIB + 1024, &backup)], unknown(3000)),
        (64 * MIB, &[stray, (8 * MIB + 1024, &group_3)], unknown(3000)),
        (64 * MIB, &[stray, (MIB + 8192, &sound)], damaged(Signature::Xfs)),
        (64 * MIB, &[stray, (16 * MIB, &sound)], damaged(Signature::Xfs)),
        (64 * MIB, &[stray, (MIB + 8192, &unsound)], unknown(3000)),
        (64 * MIB, &[stray, (MIB + 4096 + 512, &sound)], unknown(3000)),
    ];
    for (size, pieces, expected) in rows {
        let found = read_content_within(disk(*size, pieces), *size, 0);
        let places: Vec<_> = pieces.iter().map(|(at, _)| at).collect();
        assert_eq!(found.as_ref(), Ok(expected), "{size}: {places:?}");
    }
}

#[test]
fn disk_shorter_than_its_size_is_read_error() {
    for (there, size) in [(512, 1024), (MIB, 2 * MIB)] {
        let found = read_content_within(disk(there, &[]), size, 0);
        assert_eq!(found, Err(Errno::IO));
    }
}

/// A disk whose size is unknown must not look blank.
#[test]
fn other_file_than_block_device_is_error() {
    let found = recognise_disk(disk(MIB, &[]), 0, || (), |_, _| Ok(None));
    assert_eq!(found, Err(Errno::NOTTY));
}

/// What would be recognised in the first and the last bytes is in the areas, too.
#[test]
fn blank_areas_begin_and_end_with_disk() {
    for size in [512, 4096, MIB, 64 * MIB + 512, 1 << 40, (16 << 40) - 512] {
        let ranges = blank::ranges(size);
        let (start, length) = ranges[0];
        assert!(start == 0 && length >= size.min(HEAD as u64), "{size}");
        let (start, length) = ranges[ranges.len() - 1];
        let tail = size.saturating_sub(TAIL as u64) & !(ALIGNMENT as u64 - 1);
        assert!(start <= tail && start + length == size, "{size}");
    }
}

/// The caller hears early that a disk seems to be blank, and searches the areas itself.
#[test]
fn only_blank_start_asks_caller_to_search() {
    let rows: [(Pieces<'_>, _, _); 4] = [
        (&[], (1, 1), Content::Blank),
        (&[(0, b"LUKS\xba\xbe")], (0, 0), Content::Foreign(Signature::Luks)),
        (&[(3000, &[1])], (0, 0), Content::Unknown { at: 3000 }),
        (&[(64 * MIB - 70_000, &[1])], (1, 1), Content::Unknown { at: 64 * MIB - 70_000 }),
    ];
    for (pieces, calls, expected) in rows {
        let (blank, searched) = (Cell::new(0), Cell::new(0));
        let search = |size, within| {
            searched.set(searched.get() + 1);
            area_search::search(disk(size, pieces), size, &within)
        };
        let seems_blank = || blank.set(blank.get() + 1);
        let found = recognise_or_search(disk(64 * MIB, pieces), 64 * MIB, 0, seems_blank, search);
        assert_eq!((found, (blank.get(), searched.get())), (Ok(expected), calls));
    }
}

#[test]
fn two_superblocks_on_disk_are_judged_together() {
    let head = |pieces: Pieces<'_>| {
        let mut head = vec![0; FIRST];
        for (at, bytes) in pieces {
            let at = usize::try_from(*at).expect("within the head");
            head[at..at + bytes.len()].copy_from_slice(bytes);
        }
        head
    };
    let (sound, unsound) = (xfs(4096), xfs(0));
    let (ext, no_size) = (ext(100, 0), ext(0, 0));
    let mut journal = ext.clone();
    journal[0x60] = 8;
    let luks: (u64, &[u8]) = (4000, b"LUKS\xba\xbe");
    let boot: (u64, &[u8]) = (0, b"LUKS\xba\xbe");
    let word = |pieces: Pieces<'_>| match recognise(&head(pieces), 0) {
        None => "nothing",
        Some(Content::Ext(_)) => "ext",
        Some(Content::Xfs(_)) => "xfs",
        Some(Content::Foreign(Signature::ExtAndXfs)) => "both",
        Some(Content::Foreign(Signature::Luks)) => "luks",
        Some(Content::Foreign(Signature::ExtJournal)) => "journal",
        Some(Content::Damaged(Signature::Ext2)) => "damaged",
        Some(_) => "other",
    };
    for (pieces, expected) in [
        (&[(1024, &ext[..])][..], "ext"),
        (&[(1024, &ext[..]), boot], "luks"),
        (&[(1024, &ext[..]), luks], "ext"),
        (&[(0, &sound[..])], "xfs"),
        (&[(0, &unsound[..])], "xfs"),
        (&[(0, &sound[..]), (1024, &ext[..])], "both"),
        (&[(0, &unsound[..]), (1024, &ext[..])], "ext"),
        (&[(0, &sound[..]), (1024, &no_size[..])], "xfs"),
        (&[(1024, &journal[..])], "journal"),
        (&[(1024, &no_size[..])], "damaged"),
        (&[(1024, &no_size[..]), boot], "luks"),
        (&[], "nothing"),
    ] {
        let places: Vec<_> = pieces.iter().map(|(at, _)| at).collect();
        assert_eq!(word(pieces), expected, "{places:?}");
    }
    assert_eq!(recognise(&[], 0), None);
    for (pieces, expected) in [
        (&[(1024, &ext[..])][..], Some(UUID)),
        (&[(0, &sound[..])], Some(UUID)),
        (&[(0, &sound[..]), (1024, &ext[..])], None),
        (&[], None),
    ] {
        let facts = first_facts(disk(MIB, pieces)).expect("read");
        assert_eq!(facts.identifier, expected);
    }
}

#[test]
fn short_disk_shows_nothing_in_first_bytes() {
    let nothing = FirstFacts { identifier: None, features: None, ext: None };
    assert_eq!(first_facts(disk(1024, &[(1023, b"z")])), Ok(nothing));
}

#[test]
fn buffers_are_aligned_and_have_their_length() {
    for length in [FIRST, PIECE] {
        let mut memory = AlignedBuffer::new(length);
        let aligned = memory.aligned();
        assert_eq!(aligned.len(), length);
        assert_eq!(aligned.as_ptr().align_offset(ALIGNMENT), 0);
    }
}

#[test]
fn first_byte_that_is_set_is_found() {
    for at in [0, 1, 4095, 4096, 8191, 9000, 9999] {
        let mut bytes = vec![0; 10_000];
        bytes[at..].fill(1);
        assert_eq!(first_nonzero(&bytes), Some(at));
    }
    assert_eq!(first_nonzero(&[0; 10_000]), None);
    assert_eq!(first_nonzero(&[]), None);
}

#[test]
fn byte_behind_searched_area_is_not_looked_at() {
    let mut memory = AlignedBuffer::new(8192);
    let mut reader = Reader { disk: disk(MIB, &[(20_000, &[1])]), piece: memory.aligned() };
    for (length, found) in [(16_384, None), (20_000, None), (20_480, Some(20_000))] {
        assert_eq!(
            reader.find(0, length, |at, bytes| first_nonzero(bytes).map(|index| at + index as u64)),
            Ok(found),
            "{length} bytes"
        );
    }
}

#[test]
fn read_beyond_buffer_is_refused() {
    let reader = Reader { disk: disk(MIB, &[]), piece: &mut [] };
    let mut area = [0; 512];
    assert_eq!(reader.read_into(&mut area, 0, 513).err(), Some(Errno::INVAL));
    assert_eq!(reader.read_into(&mut area, 0, 512).map(<[u8]>::len), Ok(512));
}
