//! The XFS superblock (XFS Algorithms & Data Structures, "Superblocks").
use super::field::{be16, be32, be64, crc32c, id, le32};
use ebs_csi_policy::facts::XfsFacts;
use ebs_csi_wire::{Features, FsType};

const CRC_AT: usize = 224;

/// Reads the superblock at the start of `head`; returns None when there is none.
pub fn read(head: &[u8]) -> Option<XfsFacts> {
    if head.get(..4)? != b"XFSB" {
        return None;
    }
    let block_bytes = u64::from(be32(head, 4));
    let blocks = be64(head, 8);
    let version = be16(head, 100) & 0xf;
    let sector = usize::from(be16(head, 102));
    let plausible = block_bytes.is_power_of_two()
        && (512..=65536).contains(&block_bytes)
        && sector.is_power_of_two()
        && (512..=32768).contains(&sector)
        && (4..=5).contains(&version);
    let is_intact = || head.get(..sector).is_some_and(|head| has_valid_checksum(head, CRC_AT));
    Some(XfsFacts {
        sound: plausible && (version == 4 || is_intact()),
        in_progress: head.get(126).copied() == Some(1),
        bytes: if plausible { blocks.saturating_mul(block_bytes) } else { 0 },
        block_bytes: if plausible { block_bytes } else { 0 },
        groups: be32(head, 88),
        uuid: id(head, 32),
    })
}

/// Returns the features of the superblock, and the size of its blocks. Version 4 has other fields
/// for its features, all of which are old.
pub fn features(head: &[u8]) -> Option<Features> {
    if head.get(..4)? != b"XFSB" {
        return None;
    }
    let word = |at| if be16(head, 100) & 0xf == 5 { be32(head, at) } else { 0 };
    Some(Features {
        fs: FsType::Xfs,
        compatible: word(208),
        incompatible: word(216),
        read_only_compatible: word(212),
        block_bytes: be32(head, 4),
    })
}

/// Returns whether the structure's checksum, stored at `at` and counted as zero, is valid.
pub(super) fn has_valid_checksum(bytes: &[u8], at: usize) -> bool {
    let before = crc32c(!0, &bytes[..at]);
    let without = crc32c(before, &[0; 4]);
    !crc32c(without, &bytes[at + 4..]) == le32(bytes, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The superblock of an XFS of 1 GiB, with these sizes of block and sector and this version.
    fn superblock(block: u32, sector: u16, version: u16) -> Vec<u8> {
        let mut head = vec![0; usize::from(sector).max(512)];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"XFSB");
        put(4, &block.to_be_bytes());
        put(8, &(1_u64 << 18).to_be_bytes());
        put(32, &[7; 16]);
        put(88, &4_u32.to_be_bytes());
        // The other bits of the field are features.
        put(100, &(0xb4a0 | version).to_be_bytes());
        put(102, &sector.to_be_bytes());
        let sum = !crc32c(!0, &head);
        head[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
        head
    }

    #[test]
    fn only_plausible_superblock_is_sound() {
        for (block, sector, version, sound) in [
            (4096, 512, 4, true),
            (4096, 512, 5, true),
            (512, 512, 5, true),
            (65536, 32768, 5, true),
            (256, 512, 5, false),
            (131_072, 512, 5, false),
            (3072, 512, 5, false),
            (4096, 256, 4, false),
            (4096, 1536, 5, false),
            (4096, 512, 3, false),
            (4096, 512, 6, false),
        ] {
            let facts = read(&superblock(block, sector, version)).expect("the magic");
            let block = if sound { u64::from(block) } else { 0 };
            let wanted = XfsFacts {
                sound,
                in_progress: false,
                bytes: block << 18,
                block_bytes: block,
                groups: 4,
                uuid: [7; 16],
            };
            assert_eq!(facts, wanted, "{block} {sector} {version}");
        }
    }

    /// Version 4 has no checksum.
    #[test]
    fn wrong_checksum_is_unsound_in_version_5() {
        for (version, at, sound) in [(4, 300, true), (5, 300, false), (5, 227, false)] {
            let mut head = superblock(4096, 512, version);
            head[at] ^= 1;
            assert_eq!(read(&head).expect("the magic").sound, sound, "byte {at}");
        }
        let short = &superblock(4096, 512, 5)[..511];
        assert!(!read(short).expect("the magic").sound);
        assert_eq!(read(b"XFSA"), None);
    }

    #[test]
    fn in_progress_mark_is_read() {
        for (mark, in_progress) in [(0, false), (1, true), (2, false)] {
            let mut head = superblock(4096, 512, 4);
            head[126] = mark;
            assert_eq!(read(&head).expect("the magic").in_progress, in_progress);
        }
    }
}
