//! The ext2, ext3 and ext4 superblock (kernel documentation, "ext4 Data Structures: Super Block").
use super::field::{crc32c, id, le16, le32};
use ebs_csi_policy::facts::{ExtFacts, ExtLevel};
use ebs_csi_wire::{Features, FsType};

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
const COMPAT_FAST_COMMIT: u32 = 0x400;
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_64BIT: u32 = 0x80;
/// The features filetype (0x2), needs_recovery, journal_dev and meta_bg (0x10), which ext2 and ext3
/// know.
const INCOMPAT_OF_EXT3: u32 = 0x1e;
/// The features sparse_super (0x1), large_file and btree_dir (0x4), which ext2 and ext3 know.
const RO_COMPAT_OF_EXT3: u32 = 0x7;
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
        fast_commit: le32(sb, 0x5c) & COMPAT_FAST_COMMIT != 0,
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

/// Returns the features of the superblock, and the size of its blocks.
pub fn features(head: &[u8]) -> Option<Features> {
    let sb = superblock(head)?;
    Some(Features {
        fs: FsType::Ext4,
        compatible: le32(sb, 0x5c),
        incompatible: le32(sb, 0x60),
        read_only_compatible: le32(sb, 0x64),
        block_bytes: 1024_u32.checked_shl(le32(sb, 0x18)).unwrap_or(0),
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
    let told = default_words.split(',').filter_map(|word| word.strip_prefix("errors=")).next_back();
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
        && has_valid_checksum(sb)
}

fn has_valid_checksum(sb: &[u8]) -> bool {
    if le32(sb, 0x64) & RO_COMPAT_METADATA_CHECKSUM == 0 {
        return true;
    }
    // Type 1 is CRC-32C, the only one that exists.
    sb.get(0x175) == Some(&1) && crc32c(!0, &sb[..0x3fc]) == le32(sb, 0x3fc)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_700_000_000;
    const DAY: u32 = 24 * 3600;

    type Changes<'c> = &'c [(usize, &'c [u8])];

    /// The superblock of a clean ext2 of 64 MiB, with changes at offsets in the superblock.
    fn head(changes: Changes<'_>) -> Vec<u8> {
        let mut head = vec![0; AT + LENGTH];
        let plain: Changes<'_> = &[
            (0x4, &16384_u32.to_le_bytes()),
            (0x18, &[2]),
            (0x20, &32768_u32.to_le_bytes()),
            (0x38, &MAGIC.to_le_bytes()),
            (0x3a, &[1]),
            (0x40, &(NOW - 100).to_le_bytes()),
            (0x68, &[7; 16]),
        ];
        for (at, bytes) in plain.iter().chain(changes) {
            head[AT + at..AT + at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    fn facts(changes: Changes<'_>) -> ExtFacts {
        read(&head(changes), NOW.into()).expect("a superblock")
    }

    #[test]
    fn fields_are_read_from_their_places() {
        let plain = ExtFacts {
            level: ExtLevel::Ext2,
            clean: true,
            bytes: 64 << 20,
            block_bytes: 4096,
            group_blocks: 32768,
            uuid: [7; 16],
            last_check: u64::from(NOW - 100),
            ..ExtFacts::default()
        };
        assert_eq!(facts(&[]), plain);
        type Row<'r> = (Changes<'r>, fn(&mut ExtFacts));
        let rows: &[Row<'_>] = &[
            (&[(0x150, &[1])], |_| ()),
            (&[(0x60, &[0x80]), (0x150, &[1])], |f| {
                f.level = ExtLevel::Ext4;
                f.bytes = ((1 << 32) + 16384) * 4096;
            }),
            (&[(0x18, &[6])], |f| {
                f.bytes = 1 << 30;
                f.block_bytes = 65536;
            }),
            (&[(0x18, &[7])], |f| {
                f.bytes = 0;
                f.block_bytes = 0;
            }),
            (&[(0x60, &[0x4])], |f| {
                f.needs_recovery = true;
                f.clean = false;
            }),
            (&[(0x5c, &[4]), (0xe0, &[8])], |f| f.level = ExtLevel::Ext3),
            (&[(0x5c, &[4])], |f| {
                f.level = ExtLevel::Ext3;
                f.outside_journal = true;
            }),
            (&[(0x5c, &[4]), (0xe0, &[8]), (0xe4, &[1])], |f| {
                f.level = ExtLevel::Ext3;
                f.outside_journal = true;
            }),
            (&[(0xe4, &[1])], |_| ()),
            (&[(0x5d, &[4])], |f| f.fast_commit = true),
            (&[(0x60, &[0x2 | 0x10]), (0x64, &[7])], |_| ()),
            (&[(0x60, &[0x40])], |f| f.level = ExtLevel::Ext4),
            (&[(0x64, &[8])], |f| f.level = ExtLevel::Ext4),
            (&[(0x3c, &[1])], |f| f.continues = true),
            (&[(0x3c, &[2])], |_| ()),
            (&[(0x200, b"acl,errors=continue")], |f| {
                f.default_words = "acl,errors=continue".into();
                f.continues = true;
            }),
            (&[(0x3c, &[1]), (0x200, b"errors=panic")], |f| {
                f.default_words = "errors=panic".into();
            }),
            (&[(0x200, b"errors=panic,errors=continue")], |f| {
                f.default_words = "errors=panic,errors=continue".into();
                f.continues = true;
            }),
            (&[(0x200, &[b'a'; 65])], |f| f.default_words = "a".repeat(64)),
            (&[(0x100, &[8])], |f| f.default_options = 8),
            (&[(0x34, &[1])], |f| f.mounted = true),
            (&[(0x275, &[1])], |f| {
                f.last_check += 1 << 32;
                f.clean = false;
            }),
        ];
        for (changes, change) in rows {
            let mut wanted = plain.clone();
            change(&mut wanted);
            assert_eq!(facts(changes), wanted, "{changes:x?}");
        }
    }

    #[test]
    fn due_checks_and_wrong_clocks_are_not_clean() {
        let time = |seconds: u32| seconds.to_le_bytes();
        let rows: &[(Changes<'_>, bool)] = &[
            (&[(0x3a, &[0])], false),
            (&[(0x3a, &[3])], false),
            (&[(0x3a, &[5])], false),
            (&[(0x34, &[19, 0, 20, 0])], true),
            (&[(0x34, &[20, 0, 20, 0])], false),
            (&[(0x34, &[20, 0, 0, 0])], true),
            (&[(0x34, &[0xff, 0x7f, 0xff, 0x7f])], false),
            (&[(0x34, &[0, 0x80, 0, 0x80])], true),
            (&[(0x34, &[20, 0, 0xff, 0xff])], true),
            (&[(0x44, &time(100))], false),
            (&[(0x44, &time(101))], true),
            (&[(0x40, &time(NOW + DAY))], true),
            (&[(0x40, &time(NOW + DAY + 1))], false),
            (&[(0x64, &[0, 0, 1])], false),
            (&[(0xe8, &[12])], false),
            (&[(0x194, &[1])], false),
        ];
        for (changes, clean) in rows {
            assert_eq!(facts(changes).clean, *clean, "{changes:x?}");
        }
    }

    #[test]
    fn only_right_checksum_of_type_1_is_clean() {
        for (kind, error, clean) in [(1, 0, true), (1, 1, false), (0, 0, false)] {
            let changes: Changes<'_> = &[(0x65, &[4]), (0x175, &[kind])];
            let sum = crc32c(!0, &head(changes)[AT..AT + 0x3fc]) ^ error;
            let sum = sum.to_le_bytes();
            let all: Changes<'_> = &[changes[0], changes[1], (0x3fc, &sum)];
            assert_eq!(facts(all).clean, clean, "type {kind}, error {error}");
        }
    }

    #[test]
    fn journal_device_is_no_file_system() {
        let journal = head(&[(0x60, &[8])]);
        assert!(is_journal(&journal) && read(&journal, 0).is_none());
        assert!(!is_journal(&head(&[(0x60, &[4])])));
        assert!(!is_journal(&head(&[(0x60, &[8]), (0x38, &[0])])));
    }

    #[test]
    fn only_backup_of_group_1_is_first_backup() {
        let backup = |changes: Changes<'_>| first_backup(&head(changes)[AT..]);
        assert_eq!(backup(&[(0x5a, &[1])]), Some(ExtLevel::Ext2));
        assert_eq!(backup(&[(0x5a, &[1]), (0x5c, &[4])]), Some(ExtLevel::Ext3));
        assert_eq!(backup(&[(0x5a, &[3])]), None);
        assert_eq!(backup(&[(0x5a, &[1]), (0x38, &[0])]), None);
    }
}
