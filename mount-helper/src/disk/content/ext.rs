//! The ext2, ext3 and ext4 superblock (kernel documentation, "ext4 Data Structures: Super Block").
use super::checksum::crc32c;
use super::field::{id, le16, le32};
use ebs_csi_policy::facts::{ExtFacts, ExtLevel};

/// Offset of the superblock, in bytes from the start of the disk.
pub const AT: usize = 1024;
const LENGTH: usize = 1024;

const MAGIC: u16 = 0xef53;
const STATE_VALID: u16 = 1;
const STATE_ERROR: u16 = 2;
const STATE_ORPHANS: u16 = 4;
/// `EXT4_ERRORS_CONTINUE` of `s_errors`.
const ERRORS_CONTINUE: u16 = 1;
/// `s_mount_opts`: a string that ends at its first NUL or at the end of the field.
const MOUNT_OPTIONS: std::ops::Range<usize> = 0x200..0x240;
const COMPAT_JOURNAL: u32 = 0x4;
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_64BIT: u32 = 0x80;
/// The features filetype, needs_recovery, journal_dev and meta_bg, which ext2 and ext3 know.
const INCOMPAT_OF_EXT3: u32 = 0x2 | 0x4 | 0x8 | 0x10;
/// The features sparse_super, large_file and btree_dir, which ext2 and ext3 know.
const RO_COMPAT_OF_EXT3: u32 = 0x1 | 0x2 | 0x4;
const RO_COMPAT_METADATA_CHECKSUM: u32 = 0x400;
const RO_COMPAT_ORPHAN_PRESENT: u32 = 0x1_0000;

/// Reads a superblock. `head` begins at byte 0 of the disk; `now` is in seconds since 1970. Returns
/// None when there is no superblock, and for the journal device of another file system, which is
/// not a file system itself.
pub fn read(head: &[u8], now: u64) -> Option<ExtFacts> {
    let sb = superblock(head)?;
    let incompatible = le32(sb, 0x60);
    if incompatible & INCOMPAT_JOURNAL_DEVICE != 0 {
        return None;
    }
    // The kernel refuses a larger shift. It gives a size of 0, which no caller accepts as a whole
    // file system.
    let shift = le32(sb, 0x18);
    let block_bytes = if shift <= 6 { 1024_u64 << shift } else { 0 };
    let mut blocks = u64::from(le32(sb, 0x4));
    if incompatible & INCOMPAT_64BIT != 0 {
        blocks |= u64::from(le32(sb, 0x150)) << 32;
    }
    let default_words = default_words(sb);
    Some(ExtFacts {
        level: level(sb),
        clean: clean(sb, now),
        needs_recovery: incompatible & INCOMPAT_RECOVER != 0,
        bytes: blocks.saturating_mul(block_bytes),
        block_bytes,
        group_blocks: u64::from(le32(sb, 0x20)),
        uuid: id(sb, 0x68),
        continues: continues(sb, &default_words),
        outside_journal: le32(sb, 0x5c) & COMPAT_JOURNAL != 0
            && (le32(sb, 0xe0) == 0 || le32(sb, 0xe4) != 0),
        default_options: le32(sb, 0x100),
        default_words,
        last_check: last_check(sb),
        mounted: le16(sb, 0x34) != 0,
    })
}

fn superblock(head: &[u8]) -> Option<&[u8]> {
    let sb = head.get(AT..AT + LENGTH)?;
    (le16(sb, 0x38) == MAGIC).then_some(sb)
}

/// Returns whether `head` begins with the external journal of a file system on another device.
pub fn is_journal(head: &[u8]) -> bool {
    superblock(head).is_some_and(|sb| le32(sb, 0x60) & INCOMPAT_JOURNAL_DEVICE != 0)
}

/// Returns which ext version wrote the backup superblock at the start of `block`; None when `block`
/// does not start with the backup of the second group.
pub fn first_backup(block: &[u8]) -> Option<ExtLevel> {
    (le16(block, 0x38) == MAGIC && le16(block, 0x5a) == 1).then(|| level(block))
}

fn level(sb: &[u8]) -> ExtLevel {
    if le32(sb, 0x60) & !INCOMPAT_OF_EXT3 != 0 || le32(sb, 0x64) & !RO_COMPAT_OF_EXT3 != 0 {
        ExtLevel::Ext4
    } else if le32(sb, 0x5c) & COMPAT_JOURNAL != 0 {
        ExtLevel::Ext3
    } else {
        ExtLevel::Ext2
    }
}

fn default_words(sb: &[u8]) -> String {
    let room = sb.get(MOUNT_OPTIONS).unwrap_or_default();
    let length = room.iter().position(|byte| *byte == 0);
    // A field that is not UTF-8 matches no option that is allowed.
    String::from_utf8_lossy(&room[..length.unwrap_or(room.len())]).into_owned()
}

/// Returns whether the file system continues after an error. As in the kernel, the last `errors=`
/// option decides, or else `s_errors`.
fn continues(sb: &[u8], default_words: &str) -> bool {
    let told = default_words
        .split(',')
        .filter_map(|word| word.strip_prefix("errors="))
        .next_back();
    match told {
        Some(told) => told == "continue",
        None => le16(sb, 0x3c) == ERRORS_CONTINUE,
    }
}

fn last_check(sb: &[u8]) -> u64 {
    u64::from(le32(sb, 0x40)) | u64::from(sb.get(0x275).copied().unwrap_or(0)) << 32
}

/// Returns whether e2fsck(8) would find nothing to do, by the conditions that e2fsck itself tests.
fn clean(sb: &[u8], now: u64) -> bool {
    let state = le16(sb, 0x3a);
    let read_only_compatible = le32(sb, 0x64);
    let mounts = le16(sb, 0x34);
    let most_mounts = le16(sb, 0x36);
    let interval = u64::from(le32(sb, 0x44));
    let last_check = last_check(sb);
    // Zero or negative: no limit.
    let mounts_due = most_mounts != 0 && most_mounts < 0x8000 && mounts >= most_mounts;
    let interval_due = interval != 0 && now >= last_check.saturating_add(interval);
    // A last check in the future means that some clock was wrong.
    let sane_clock = last_check <= now.saturating_add(24 * 3600);
    state & STATE_VALID != 0
        && state & (STATE_ERROR | STATE_ORPHANS) == 0
        && le32(sb, 0x60) & INCOMPAT_RECOVER == 0
        && read_only_compatible & RO_COMPAT_ORPHAN_PRESENT == 0
        && le32(sb, 0xe8) == 0
        && le32(sb, 0x194) == 0
        && !mounts_due
        && !interval_due
        && sane_clock
        && checksum_right(sb)
}

fn checksum_right(sb: &[u8]) -> bool {
    if le32(sb, 0x64) & RO_COMPAT_METADATA_CHECKSUM == 0 {
        return true;
    }
    // Type 1 is CRC-32C, the only one that exists.
    sb.get(0x175) == Some(&1) && crc32c(!0, &sb[..0x3fc]) == le32(sb, 0x3fc)
}
