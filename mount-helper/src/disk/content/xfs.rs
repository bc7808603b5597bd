//! The XFS superblock (XFS Algorithms & Data Structures, "Superblocks").
use super::checksum::crc32c;
use super::field::{be16, be32, be64, id, le32};
use ebs_csi_policy::facts::XfsFacts;

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
    Some(XfsFacts {
        sound: plausible && (version == 4 || checksum_right(head, sector)),
        in_progress: head.get(126).copied() == Some(1),
        bytes: if plausible {
            blocks.saturating_mul(block_bytes)
        } else {
            0
        },
        block_bytes: if plausible { block_bytes } else { 0 },
        groups: be32(head, 88),
        uuid: id(head, 32),
    })
}

fn checksum_right(head: &[u8], sector: usize) -> bool {
    let Some(bytes) = head.get(..sector) else {
        return false;
    };
    let before = crc32c(!0, &bytes[..CRC_AT]);
    let without = crc32c(before, &[0; 4]);
    let all = crc32c(without, &bytes[CRC_AT + 4..]);
    !all == le32(bytes, CRC_AT)
}
