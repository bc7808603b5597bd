//! The record that a format has begun: one block, written to a disk that was proved blank, before the tool starts,
//! and taken away when the new file system is complete and on the disk.
//!
//! A tool that is killed, or a power cut, leaves bytes that cannot be told from data, or a superblock whose file system
//! is not all there. This record tells: what stands beside it was written by the format that never finished.
use super::checksum::crc32c;
use ebs_csi_wire::VolumeId;

/// Length of the record, in bytes; one direct write.
pub const LENGTH: usize = 4096;
const HEADLINE: &str = "ebs.csi.aws.com: a format of this disk has begun\n";

const MIB: u64 = 1 << 20;

/// Where the record stands on a disk of this size, in bytes: away from everything that must be zero on a blank disk, and
/// where mke2fs writes nothing but inode tables it leaves for later. None for a disk that is too small for such a place.
///
/// Five eighths lie behind the journal in the middle; the distance from there passes a backup superblock with its
/// descriptors, and on large disks the bitmaps and inode tables of sixteen groups.
pub fn place(size: u64) -> Option<u64> {
    let beyond = match size {
        0..0x200_0000 => return None,
        0x200_0000..0x2000_0000 => 5 * MIB / 2,
        0x2000_0000..0x4000_0000 => 20 * MIB,
        _ => 70 * MIB,
    };
    Some((size / 8 * 5 + beyond) & !(LENGTH as u64 - 1))
}

/// A block is a record, of whatever volume.
pub fn is_one(block: &[u8]) -> bool {
    block.starts_with(HEADLINE.as_bytes())
}

/// The record of this volume on a disk of this size.
pub fn of(volume: &VolumeId, size: u64) -> Vec<u8> {
    let mut block = format!("{HEADLINE}{volume}\n{size}\n").into_bytes();
    let sum = !crc32c(!0, &block);
    block.extend_from_slice(format!("{sum:08x}\n").as_bytes());
    block.resize(LENGTH, 0);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_stands_outside_of_what_a_blank_disk_must_have_zero() {
        for size in [
            32 * MIB,
            64 * MIB,
            100 * MIB,
            512 * MIB,
            700 * MIB,
            1 << 30,
            4 << 30,
            8 << 30,
            1 << 40,
            16 << 40,
            (64 << 40) - 512,
        ] {
            let place = place(size).expect("a place");
            let end = place + LENGTH as u64;
            assert!(end <= size && place.is_multiple_of(LENGTH as u64));
            for (start, length) in ebs_csi_policy::blank::ranges(size) {
                assert!(
                    end <= start || place >= start + length,
                    "{size}: {place} in {start}+{length}"
                );
            }
        }
        assert_eq!(place(16 * MIB), None);
    }

    #[test]
    fn a_record_is_of_one_volume_and_one_size() {
        let one = VolumeId::parse("vol-00000000000000001").expect("id");
        let two = VolumeId::parse("vol-00000000000000002").expect("id");
        assert_eq!(of(&one, 1).len(), LENGTH);
        assert_ne!(of(&one, 1), of(&two, 1));
        assert_ne!(of(&one, 1), of(&one, 2));
    }
}
