//! The record that a format has begun: one block, written to a disk that was proved blank, before the tool starts,
//! and taken away when the new file system is complete and on the disk.
//!
//! A tool that is killed, or a power cut, leaves bytes that cannot be told from data, or a superblock whose file system
//! is not all there. This record tells: what stands beside it was written by the format that never finished.
use super::checksum::crc32c;
use ebs_csi_wire::VolumeId;
use rustix::fd::AsFd;
use rustix::io::Errno;

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

/// The record of this volume on a disk of this size, for a format that began at `time`, in seconds since 1970.
pub fn of(volume: &VolumeId, size: u64, time: u64) -> Vec<u8> {
    let mut block = format!("{HEADLINE}{volume}\n{size}\n{time}\n").into_bytes();
    let sum = !crc32c(!0, &block);
    block.extend_from_slice(format!("{sum:08x}\n").as_bytes());
    block.resize(LENGTH, 0);
    block
}

/// When the format began that a block records; None when it is not the record of this volume on a disk of this size, to
/// the last byte.
pub fn read(block: &[u8], volume: &VolumeId, size: u64) -> Option<u64> {
    let rest = block.strip_prefix(HEADLINE.as_bytes())?;
    let line = rest.split(|byte| *byte == b'\n').nth(2)?;
    let time = std::str::from_utf8(line).ok()?.parse().ok()?;
    (block == of(volume, size, time)).then_some(time)
}

/// Write a block in the place of the record, directly to the disk: no copy in memory that could be written later, over
/// what a file system has put there since.
pub fn put(disk: impl AsFd, place: u64, block: &[u8]) -> Result<(), Errno> {
    #[repr(align(4096))]
    struct Aligned([u8; LENGTH]);
    let mut aligned = Aligned([0; LENGTH]);
    aligned
        .0
        .get_mut(..block.len())
        .ok_or(Errno::INVAL)?
        .copy_from_slice(block);
    match rustix::io::pwrite(disk, &aligned.0, place)? {
        LENGTH => Ok(()),
        _ => Err(Errno::IO),
    }
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
        let block = of(&one, 1, 1_700_000_000);
        assert_eq!(block.len(), LENGTH);
        assert_eq!(read(&block, &one, 1), Some(1_700_000_000));
        assert_eq!(read(&block, &two, 1), None);
        assert_eq!(read(&block, &one, 2), None);
        for at in [0, 60, 90, 100, 110, LENGTH - 1] {
            let mut damaged = block.clone();
            damaged[at] ^= 1;
            assert_eq!(read(&damaged, &one, 1), None, "byte {at}");
        }
        assert_eq!(read(&[], &one, 1), None);
    }
}
