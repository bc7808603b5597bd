//! What the bounded reader recognises in real images, in crafted images and in noise. Needs no
//! root.
mod corpus;
mod scattered;

use ebs_csi_mount_helper::disk::content::{HEAD, ext, recognise};
use ebs_csi_policy::facts::{Content, ExtLevel};
use ebs_csi_wire::Signature;
use proptest::prelude::*;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs()
}

/// Returns what a tool writes to a disk of so many MiB. Returns `None` when the tool is not
/// installed.
fn made(megabytes: u64, tool: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let directory = tempfile::tempdir().expect("tempdir");
    let path = directory.path().join("image");
    fs::File::create(&path).expect("create").set_len(megabytes << 20).expect("set_len");
    let made = Command::new(tool)
        .args(arguments)
        .arg(&path)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .stdin(Stdio::null())
        .output();
    let Ok(made) = made else {
        println!("skipped: {tool} is not installed");
        return None;
    };
    assert!(made.status.success(), "{tool} {arguments:?}: {made:?}");
    Some(fs::read(&path).expect("read"))
}

/// Returns the first bytes of such a disk.
fn image(megabytes: u64, tool: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let mut disk = made(megabytes, tool, arguments)?;
    disk.truncate(HEAD);
    Some(disk)
}

fn ext4() -> Option<Vec<u8>> {
    image(64, "mke2fs", &["-q", "-F", "-t", "ext4"])
}

#[test]
fn ext2_ext3_and_ext4_are_distinguished() {
    for (kind, level) in
        [("ext2", ExtLevel::Ext2), ("ext3", ExtLevel::Ext3), ("ext4", ExtLevel::Ext4)]
    {
        let Some(head) = image(64, "mke2fs", &["-q", "-F", "-t", kind]) else {
            return;
        };
        let Some(Content::Ext(facts)) = recognise(&head, now()) else {
            panic!("{kind}: {:?}", recognise(&head, now()));
        };
        assert_eq!(facts.level, level);
        assert!(facts.clean && !facts.needs_recovery, "{facts:?}");
        assert_eq!(facts.bytes, 64 << 20);
    }
}

#[test]
fn xfs_is_recognised_with_size_and_uuid() {
    let uuid = "0f0e0d0c-0b0a-0908-0706-050403020100";
    let Some(head) = image(400, "mkfs.xfs", &["-q", "-m", &format!("uuid={uuid}")]) else {
        return;
    };
    let Some(Content::Xfs(facts)) = recognise(&head, now()) else {
        panic!("{:?}", recognise(&head, now()));
    };
    assert!(facts.sound && !facts.in_progress);
    assert_eq!(facts.bytes, 400 << 20);
    let expected: Vec<u8> = (0..16).rev().collect();
    assert_eq!(facts.uuid.as_slice(), expected);
}

#[test]
fn other_formats_are_foreign() {
    for (tool, arguments, megabytes, kind) in [
        ("mkswap", &["-q"][..], 64, Signature::Swap),
        ("mkfs.btrfs", &["-q"][..], 256, Signature::Btrfs),
        ("mkfs.vfat", &[][..], 64, Signature::Vfat),
    ] {
        if let Some(head) = image(megabytes, tool, arguments) {
            assert_eq!(recognise(&head, now()), Some(Content::Foreign(kind)), "{tool}");
        }
    }
}

#[test]
fn partially_overwritten_superblock_is_damaged_not_foreign() {
    let Some(mut head) = ext4() else { return };
    // Overwrites everything after the block size, except the magic.
    head[ext::AT + 8..ext::AT + 0x38].fill(0xff);
    assert_eq!(recognise(&head, now()), Some(Content::Damaged(Signature::Ext4)));
    // A signature that explains the disk better comes first.
    head[..6].copy_from_slice(b"LUKS\xba\xbe");
    assert_eq!(recognise(&head, now()), Some(Content::Foreign(Signature::Luks)));
    let Some(journal) = image(64, "mke2fs", &["-q", "-F", "-O", "journal_dev"]) else {
        return;
    };
    assert_eq!(recognise(&journal, now()), Some(Content::Foreign(Signature::ExtJournal)));
}

/// A signature further inside an ext4 or XFS may belong to a user's image in a file, and changes
/// nothing.
#[test]
fn signature_in_boot_area_wins_over_ext_superblock() {
    for (tool, arguments, megabytes) in
        [("mke2fs", &["-q", "-F", "-t", "ext4"][..], 64), ("mkfs.xfs", &["-q"][..], 400)]
    {
        let Some(head) = image(megabytes, tool, arguments) else {
            continue;
        };
        let with = |pieces: [(usize, &[u8]); 2]| {
            let mut head = head.clone();
            for (at, bytes) in pieces {
                head[at..at + bytes.len()].copy_from_slice(bytes);
            }
            recognise(&head, now())
        };
        if tool == "mke2fs" {
            let luks = with([(0, b"LUKS"), (4, b"\xba\xbe")]);
            assert_eq!(luks, Some(Content::Foreign(Signature::Luks)));
            let table = with([(446 + 4, b"\x83"), (510, b"\x55\xaa")]);
            assert_eq!(table, Some(Content::PartitionTable(Signature::Mbr)));
        }
        // An image inside a file of the volume is the user's data.
        let within = with([(32769, b"CD001"), (0x1_0040, b"_BHRfS_M")]);
        assert!(matches!(within, Some(Content::Ext(_) | Content::Xfs(_))), "{tool}");
    }
}

proptest! {
    /// After a flip of one bit that the checksum covers, the file system is checked or no longer
    /// recognised.
    #[test]
    fn a_damaged_superblock_is_never_clean(byte in 0_usize..1020, bit in 0_u8..8) {
        static HEAD_OF_EXT4: std::sync::OnceLock<Option<Vec<u8>>> = std::sync::OnceLock::new();
        let Some(head) = HEAD_OF_EXT4.get_or_init(ext4) else { return Ok(()) };
        let mut head = head.clone();
        head[ext::AT + byte] ^= 1 << bit;
        // When the flip clears the bit of the feature, no checksum is left that could fail.
        let checksum_feature = byte == 0x65 && bit == 2;
        match recognise(&head, now()) {
            Some(Content::Ext(facts)) => prop_assert!(!facts.clean || checksum_feature),
            other => prop_assert!(!matches!(other, Some(Content::Xfs(_)))),
        }
    }

    /// Arbitrary bytes cause no panic and are not taken for a blank disk or for a sound XFS.
    #[test]
    fn random_bytes_are_neither_sound_xfs_nor_blank(
        bytes in proptest::collection::vec(any::<u8>(), 0..8192),
        at in 0_usize..4096,
        magic in prop_oneof![
            Just(&b"XFSB"[..]), Just(&b"\x53\xef"[..]), Just(&b"EFI PART"[..]), Just(&b""[..])
        ],
    ) {
        let mut bytes = bytes;
        if let Some(place) = bytes.get_mut(at..at + magic.len()) {
            place.copy_from_slice(magic);
        }
        match recognise(&bytes, now()) {
            Some(Content::Xfs(facts)) => prop_assert!(!facts.sound),
            Some(Content::Blank) => prop_assert!(false),
            _ => {}
        }
    }
}
