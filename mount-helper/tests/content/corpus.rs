//! Each disk that the fuzz corpus of the reader keeps is recognised as its name says, and never as
//! blank or sound when it is not.
//!
//! A name begins with the kind of the disk: `ext4-…`, `damaged-…`, `blank-…`. `UPDATE_GENERATED=1
//! cargo test -p ebs-csi-mount-helper --test content` makes the kept disks again with the real
//! tools. Inputs that a fuzzer finds are added beside them under such a name.
use crate::{made, scattered};
use ebs_csi_policy::facts::{Content, ExtLevel};
use std::fs;
use std::path::PathBuf;

/// The unit, in bytes, in which a description leaves out zeros, so that a kept disk has a few
/// kilobytes.
const SECTOR: usize = 512;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Returns the corpus's directory in this crate's directory, as cargo names it when the test runs.
/// `env!` would not do: in a target directory that several checkouts share, it may name another
/// checkout's directory.
fn corpus() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo"))
        .join("fuzz/corpus/content")
}

fn word(content: &Content) -> &'static str {
    match content {
        Content::Blank => "blank",
        Content::Ext(facts) => match facts.level {
            ExtLevel::Ext2 => "ext2",
            ExtLevel::Ext3 => "ext3",
            ExtLevel::Ext4 => "ext4",
        },
        Content::Xfs(facts) if facts.in_progress => "unfinished",
        Content::Xfs(facts) if !facts.sound => "unsound",
        Content::Xfs(_) => "xfs",
        Content::PartitionTable(_) => "table",
        Content::Foreign(_) => "foreign",
        Content::Damaged(_) => "damaged",
        Content::Unknown { .. } => "unknown",
    }
}

#[test]
fn every_corpus_disk_matches_kind_in_its_name() {
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        make();
    }
    let mut words = std::collections::BTreeSet::new();
    let mut replayed = 0;
    for entry in fs::read_dir(corpus()).expect("the corpus is there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("a name").to_owned();
        let content = scattered::look_and_judge(&fs::read(&path).expect("a readable input"));
        let found = word(&content);
        assert_eq!(name.split('-').next(), Some(found), "{name}: {content:?}");
        words.insert(found);
        replayed += 1;
    }
    assert!(replayed >= 25 && words.len() == 11, "{replayed} disks of the kinds {words:?}");
}

/// A disk in memory, which can be described in the form that the fuzz target reads.
struct Image(Vec<u8>);

impl Image {
    fn zeros(bytes: usize) -> Self {
        Self(vec![0; bytes])
    }

    fn made(megabytes: u64, tool: &str, arguments: &[&str]) -> Self {
        Self(made(megabytes, tool, arguments).expect("the tool is installed"))
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn without_head(mut self, bytes: usize) -> Self {
        self.0[..bytes].fill(0);
        self
    }

    /// Keeps the 4 KiB at each of these offsets and sets the rest to zero.
    fn only(self, places: &[usize]) -> Self {
        let mut kept = vec![0; self.0.len()];
        for at in places {
            let end = (at + 4 * KIB).min(kept.len());
            kept[*at..end].copy_from_slice(&self.0[*at..end]);
        }
        Self(kept)
    }

    fn described(&self) -> Vec<u8> {
        let sectors = u32::try_from(self.0.len() / SECTOR - 1).expect("a small disk");
        let mut out = sectors.to_le_bytes().to_vec();
        let mut at = 0;
        while at < self.0.len() {
            let zero = |at: usize| self.0[at..at + SECTOR].iter().all(|byte| *byte == 0);
            if zero(at) {
                at += SECTOR;
                continue;
            }
            let start = at;
            while at < self.0.len() && at - start < 32 * KIB && !zero(at) {
                at += SECTOR;
            }
            let piece = &self.0[start..at];
            out.extend(u32::try_from(start / 64).expect("a place").to_le_bytes());
            out.extend(u16::try_from(piece.len()).expect("a length").to_le_bytes());
            out.extend(piece);
        }
        out
    }
}

fn make() {
    // Fixed times and identifiers make the same tools produce the same disks.
    const UUID: &str = "0f0e0d0c-0b0a-0908-0706-050403020100";
    let seed = format!("hash_seed={UUID},nodiscard");
    let ext = |megabytes, kind: &str, more: &[&str]| {
        let mut arguments = vec!["-q", "-F", "-U", UUID, "-E", &seed, "-t", kind];
        arguments.extend(more);
        Image::made(megabytes, "mke2fs", &arguments)
    };
    let xfs = || Image::made(320, "mkfs.xfs", &["-q", "-m", &format!("uuid={UUID}")]);
    let small = || Image::zeros(MIB);
    let head = |image: Image| image.only(&[0]);
    let entry = [0x80, 1, 1, 0, 0x83, 1, 1, 0, 8, 0, 0, 0, 8, 0, 0, 0];
    let boot = |image: Image| image.with(446, &entry).with(510, &[0x55, 0xaa]);
    let superblock = 1024;
    for (name, image) in [
        ("blank-one-sector", Image::zeros(SECTOR)),
        ("blank-a-gibibyte", Image::zeros(1024 * MIB)),
        ("ext2-plain", head(ext(16, "ext2", &[]))),
        ("ext3-plain", head(ext(16, "ext3", &[]))),
        ("ext4-plain", head(ext(64, "ext4", &[]))),
        ("ext4-small-blocks", head(ext(16, "ext4", &["-b", "1024"]))),
        ("ext4-bigalloc", head(ext(64, "ext4", &["-O", "bigalloc"]))),
        ("ext4-without-checksum", head(ext(16, "ext4", &["-O", "^metadata_csum"]))),
        ("ext4-journal-to-replay", head(ext(16, "ext4", &[]).with(superblock + 0x60, &[0xc6]))),
        (
            "ext4-larger-than-its-disk",
            head(ext(64, "ext4", &["-b", "4096"]).with(superblock + 4, &[0xff, 0xff, 0xff, 0x7f])),
        ),
        (
            "damaged-ext4-magic-in-nonsense",
            small()
                .with(superblock, &[0xff; 1024])
                .with(superblock + 0x60, &[0; 4])
                .with(superblock + 0x38, &[0x53, 0xef]),
        ),
        // A volume whose first superblock was overwritten is not blank.
        (
            "damaged-ext4-backup-left",
            ext(64, "ext4", &["-b", "1024"]).without_head(64 * KIB).only(&[64 * KIB, 8 * MIB]),
        ),
        ("foreign-ext-journal", head(ext(64, "ext4", &["-O", "journal_dev"]))),
        ("xfs-plain", head(xfs())),
        ("unfinished-xfs", head(xfs().with(126, &[1]))),
        ("unsound-xfs-of-no-size", head(xfs().with(4, &[0; 4]))),
        ("damaged-xfs-backup-left", xfs().without_head(4 * KIB).only(&[4 * KIB, 80 * MIB])),
        ("foreign-ext-and-xfs", head(ext(320, "ext4", &[]).with(0, &xfs().0[..512]))),
        ("foreign-luks", small().with(0, b"LUKS\xba\xbe\0\x02")),
        ("foreign-lvm", small().with(512, b"LABELONE")),
        ("foreign-swap", head(Image::made(1, "mkswap", &["-q", "-U", UUID]))),
        ("foreign-btrfs", small().with(0x1_0040, b"_BHRfS_M")),
        ("foreign-zfs", small().with(200 * KIB, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0])),
        ("foreign-md-at-the-end", small().with(MIB - 64 * KIB, b"\xfc\x4e\x2b\xa9")),
        ("foreign-ext4-behind-luks", head(ext(16, "ext4", &[]).with(0, b"LUKS\xba\xbe"))),
        ("table-mbr", boot(small())),
        ("table-gpt", boot(small()).with(512, b"EFI PART")),
        ("table-gpt-backup-only", small().with(MIB - 512, b"EFI PART")),
        ("unknown-boot-signature-alone", small().with(510, &[0x55, 0xaa])),
        ("unknown-one-bit-at-the-start", small().with(3000, &[1])),
        ("unknown-one-bit-at-the-end", small().with(MIB - 1, &[0x80])),
        ("unknown-one-bit-in-the-middle", Image::zeros(64 * MIB).with(32 * MIB, &[0x10])),
    ] {
        fs::write(corpus().join(name), image.described()).expect("write");
    }
    // Inputs that only a fuzzer would write.
    for (name, bytes) in [
        ("blank-nothing-at-all", &b""[..]),
        ("blank-piece-without-content", &[0xff, 0xff, 0, 0, 1, 2, 3, 4, 9, 9][..]),
        ("unknown-piece-beyond-the-end", &[7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 5][..]),
    ] {
        fs::write(corpus().join(name), bytes).expect("write");
    }
}
