use super::super::field::crc32c;
use super::*;

const UUID: [u8; 16] = [7; 16];

/// Writes the checksum of a structure, stored at `at`.
fn sum(bytes: &mut [u8], at: usize) {
    bytes[at..at + 4].fill(0);
    let sum = !crc32c(!0, bytes);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Returns a superblock: version 5, blocks of 4096, sectors of 512 and inodes of 512 bytes.
pub(in crate::disk::content) fn superblock(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut sb = vec![0; SECTOR];
    sb[..4].copy_from_slice(b"XFSB");
    sb[4..8].copy_from_slice(&4096_u32.to_be_bytes());
    sb[8..16].copy_from_slice(&16384_u64.to_be_bytes());
    sb[32..48].copy_from_slice(&UUID);
    sb[48..56].copy_from_slice(&8200_u64.to_be_bytes());
    sb[84..88].copy_from_slice(&4096_u32.to_be_bytes());
    sb[88..92].copy_from_slice(&4_u32.to_be_bytes());
    sb[96..100].copy_from_slice(&1000_u32.to_be_bytes());
    sb[100..106].copy_from_slice(&[0xb4, 0xa5, 2, 0, 2, 0]);
    change(&mut sb);
    sum(&mut sb, 224);
    sb
}

/// Returns a header of an allocation group, filled with `fill` beside its marks.
pub(in crate::disk::content) fn header(
    magic: &[u8],
    group: Option<usize>,
    identifier: usize,
    checksum: usize,
    fill: u8,
    uuid: [u8; 16],
) -> Vec<u8> {
    let mut header = vec![fill; SECTOR];
    header[..4].copy_from_slice(magic);
    if let Some(at) = group {
        header[at..at + 4].copy_from_slice(&3_u32.to_be_bytes());
    }
    header[identifier..identifier + 16].copy_from_slice(&uuid);
    sum(&mut header, checksum);
    header
}

fn layout() -> Layout {
    Layout::of(&superblock(|_| ()))
}

#[test]
fn checksum_counts_itself_as_zero() {
    let mut bytes: Vec<u8> = (0..=255).collect();
    sum(&mut bytes, 100);
    assert!(has_valid_checksum(&bytes, 100));
    for at in [0, 99, 100, 103, 104, 255] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(!has_valid_checksum(&changed, 100), "byte {at}");
    }
}

#[test]
fn geometry_is_read_and_compared_in_full() {
    let plain = layout();
    assert_eq!((plain.block, plain.sector, plain.inode), (4096, 512, 512));
    assert_eq!(plain.numbers, [16384, 4096, 4, 8200, 1000]);
    assert_eq!(plain.uuid, UUID);
    assert!(!plain.unfinished);
    for at in [7, 15, 55, 87, 91, 99, 102, 104] {
        let other = Layout::of(&superblock(|sb| sb[at] ^= 1));
        assert!(!plain.same_geometry(&other), "byte {at}");
    }
    let renamed = Layout::of(&superblock(|sb| sb[32] = 8));
    assert!(plain.same_geometry(&renamed));
}

#[test]
fn header_is_same_with_its_marks_alone() {
    for (magic, group, identifier, checksum) in [
        (b"XFSB", None, 32, 224),
        (b"XAGF", Some(8), 64, 216),
        (b"XAGI", Some(8), 296, 312),
        (b"XAFL", Some(4), 8, 32),
    ] {
        let of = |fill| header(magic, group, identifier, checksum, fill, UUID);
        let (made, there) = (of(1), of(2));
        assert!(is_same_header(&there, &made, UUID), "{magic:?}");
        let changed = |at: usize, right: bool| {
            let mut changed = there.clone();
            changed[at] ^= 0x40;
            if right {
                sum(&mut changed, checksum);
            }
            changed
        };
        assert!(is_same_header(&changed(400, true), &made, UUID));
        let marks = [Some(0), group, Some(identifier)];
        for at in marks.into_iter().flatten() {
            let same = is_same_header(&changed(at, true), &made, UUID);
            assert!(!same, "{magic:?} byte {at}");
        }
        assert!(!is_same_header(&changed(400, false), &made, UUID));
        assert!(!is_same_header(&there, &[1; SECTOR], UUID));
    }
}

/// Returns a block of inodes of `size` bytes, filled with `fill` beside their marks.
fn inodes(size: usize, magic: &[u8], fill: u8) -> Vec<u8> {
    let mut block = vec![fill; BLOCK];
    for inode in block.chunks_mut(size) {
        inode[..2].copy_from_slice(magic);
        sum(inode, 100);
    }
    block
}

#[test]
fn inode_may_differ_in_times_alone() {
    for (size, stated, within) in [
        (512, 512, 0),
        (512, 512, 512),
        (512, 512, 3584),
        (256, 256, 512),
        (1024, 1024, 1536),
        (2048, 2048, 3584),
        (2048, 4096, 512),
        (256, 0, 512),
    ] {
        let mut layout = layout();
        layout.inode = stated;
        let made = inodes(size, b"IN", 1);
        let start = within / size * size;
        let with = |at: usize, byte: u8, right: bool| {
            let mut there = made.clone();
            there[start + at] = byte;
            if right {
                sum(&mut there[start..start + size], 100);
            }
            layout.is_same_inode(&there, &made, within)
        };
        for (at, byte, right, same) in [
            (32, 9, true, true),
            (55, 9, true, true),
            (144, 9, true, true),
            (151, 9, true, true),
            (200, 0, true, true),
            (31, 9, true, false),
            (56, 9, true, false),
            (143, 9, true, false),
            (152, 9, true, false),
            (size - 1, 9, true, false),
            (32, 9, false, false),
        ] {
            let found = with(at, byte, right);
            assert_eq!(found, same, "inodes of {size}: byte {at} is {byte}");
        }
        let others = inodes(size, b"IM", 1);
        assert!(!layout.is_same_inode(&others, &others, within));
    }
    let made = inodes(512, b"IN", 1);
    assert!(!layout().is_same_inode(&made[..511], &made, 0));
}

/// Returns two blocks, of which the second holds a node of a B-tree in group 3, for `at` on the
/// disk.
fn node(kind: &[u8], at: u64, fill: u8) -> Vec<u8> {
    let mut blocks = vec![fill; 2 * BLOCK];
    let node = &mut blocks[BLOCK..];
    node[..4].copy_from_slice(kind);
    node[16..24].copy_from_slice(&((at + 4096) / 512).to_be_bytes());
    node[32..48].copy_from_slice(&UUID);
    node[48..52].copy_from_slice(&3_u32.to_be_bytes());
    sum(node, 52);
    blocks
}

#[test]
fn tree_node_is_same_with_its_marks_alone() {
    let at = 1 << 20;
    for kind in [b"AB3B", b"AB3C", b"IAB3", b"FIB3", b"RMB3", b"R3FC"] {
        let (made, there) = (node(kind, at, 1), node(kind, at, 2));
        for within in [4096, 4608, 7680] {
            assert!(layout().is_same_node(at, &there, &made, within));
        }
        for (byte, right, same) in [
            (400, true, true),
            (0, true, false),
            (23, true, false),
            (32, true, false),
            (51, true, false),
            (400, false, false),
        ] {
            let mut changed = there.clone();
            changed[BLOCK + byte] ^= 0x40;
            if right {
                sum(&mut changed[BLOCK..], 52);
            }
            let found = layout().is_same_node(at, &changed, &made, 4096);
            assert_eq!(found, same, "{kind:?} byte {byte}");
        }
        assert!(!layout().is_same_node(at, &there[..5000], &made, 4096));
        assert!(!layout().is_same_node(at, &there, &node(b"XXXX", at, 1), 4096));
    }
    let other = node(b"XXXX", at, 1);
    assert!(!layout().is_same_node(at, &other, &other, 4096));
}

#[test]
fn header_and_node_need_unfinished_superblock() {
    let at = 1 << 20;
    let header = |fill| header(b"XAGI", Some(8), 296, 312, fill, UUID);
    for (found, made) in [
        (header(2), header(1)),
        (node(b"AB3B", at, 2)[BLOCK..].to_vec(), { node(b"AB3B", at, 1)[BLOCK..].to_vec() }),
    ] {
        // The node's place counts from the start of the piece.
        let at = if found.len() == BLOCK { at + 4096 } else { at };
        for unfinished in [false, true] {
            let mut layout = layout();
            layout.unfinished = unfinished;
            assert_eq!(layout.explains(at, &found, &made), unfinished);
        }
    }
}

#[test]
fn each_sector_must_be_explained() {
    let made = inodes(512, b"IN", 1);
    let explains = |found: &[u8]| layout().explains(0, found, &made);
    assert!(explains(&made));
    let mut found = made.clone();
    found[1000..3000].fill(0);
    assert!(explains(&found));
    let mut later = made.clone();
    later[512 + 40] = 9;
    assert!(!explains(&later));
    sum(&mut later[512..1024], 100);
    assert!(explains(&later));
    later[4095] = 9;
    assert!(!explains(&later));
}
