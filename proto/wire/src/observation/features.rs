//! Features of a file system that a kernel or a checker lacks, as bits of the superblock.

use std::fmt;

use crate::codec::values;
use crate::{FsType, pb};

/// Feature bits of an ext or XFS superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// XFS, or ext4 for all of the ext family.
    pub fs: FsType,
    /// Features that prevent neither reads nor writes.
    pub compatible: u32,
    /// Features without which the file system cannot be mounted.
    pub incompatible: u32,
    /// Features without which the file system can only be mounted read-only.
    pub read_only_compatible: u32,
    /// Size of a block, in bytes; 0 among what is lacking when the size is not the problem.
    pub block_bytes: u32,
}

/// Major and minor number of a Linux release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// 6 of 6.12.
    pub major: u32,
    /// 12 of 6.12.
    pub minor: u32,
}

impl KernelVersion {
    /// Reads the numbers at the start of a release as uname(2) has it, `6.12.3-1`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some(Self { major: numbers.next()?.ok()?, minor: numbers.next()?.ok()? })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linux {}.{}", self.major, self.minor)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Incompatible,
    ReadOnly,
}

/// A feature that not every kernel has.
struct NamedFeature {
    fs: FsType,
    word: Word,
    bit: u32,
    name: &'static str,
    /// The first kernel that has it; `None` when no kernel has it, or the kernel's configuration
    /// decides.
    since: Option<(u32, u32)>,
}

const fn feature(
    fs: FsType,
    word: Word,
    bit: u32,
    name: &'static str,
    since: Option<(u32, u32)>,
) -> NamedFeature {
    NamedFeature { fs, word, bit, name, since }
}

/// Linux, fs/ext4/ext4.h and fs/xfs/libxfs/xfs_format.h; the names are those of the tools.
const FEATURES: &[NamedFeature] = &[
    feature(FsType::Ext4, Word::Incompatible, 0x1, "compression", None),
    feature(FsType::Ext4, Word::Incompatible, 0x1000, "dirdata", None),
    feature(FsType::Ext4, Word::Incompatible, 0x2_0000, "casefold", None),
    feature(FsType::Ext4, Word::ReadOnly, 0x80, "snapshot", None),
    feature(FsType::Ext4, Word::ReadOnly, 0x800, "replica", None),
    feature(FsType::Ext4, Word::ReadOnly, 0x4000, "shared_blocks", None),
    feature(FsType::Ext4, Word::ReadOnly, 0x1_0000, "orphan_present", Some((5, 15))),
    feature(FsType::Xfs, Word::Incompatible, 0x20, "nrext64", Some((5, 19))),
    feature(FsType::Xfs, Word::Incompatible, 0x40, "exchange", Some((6, 10))),
    feature(FsType::Xfs, Word::Incompatible, 0x80, "parent", Some((6, 10))),
    feature(FsType::Xfs, Word::Incompatible, 0x100, "metadir", Some((6, 13))),
    feature(FsType::Xfs, Word::Incompatible, 0x200, "zoned", Some((6, 15))),
    feature(FsType::Xfs, Word::Incompatible, 0x400, "zone_gaps", Some((6, 15))),
];

/// Features that every kernel has which this driver supports.
const fn old(fs: FsType) -> (u32, u32) {
    match fs {
        FsType::Xfs => (0x1f, 0xf),
        // needs_recovery is a state; journal_dev is another kind of content.
        FsType::Ext3 | FsType::Ext4 => (0x1_e7de, 0xb77f),
    }
}

/// Features that e2fsprogs 1.47 and xfsprogs 6.1 have: compatible, incompatible, read-only
/// compatible.
const fn of_checkers(fs: FsType) -> [u32; 3] {
    match fs {
        FsType::Xfs => [0, 0x3f, 0xf],
        FsType::Ext3 | FsType::Ext4 => [0x1e7f, 0x3_e7de, 0x1_f77f],
    }
}

/// Returns the size, in bytes, of the largest block that a kernel mounts, with pages of
/// `page_bytes`.
pub fn largest_block(fs: FsType, kernel: KernelVersion, page_bytes: u32) -> u32 {
    let any_since = match fs {
        FsType::Xfs => KernelVersion { major: 6, minor: 12 },
        FsType::Ext3 | FsType::Ext4 => KernelVersion { major: 6, minor: 19 },
    };
    if kernel >= any_since { page_bytes.max(65_536) } else { page_bytes }
}

impl Features {
    /// Returns what a kernel lacks that has refused to mount the file system; `None` when nothing
    /// is known to be lacking.
    pub fn lacking(self, kernel: KernelVersion, page_bytes: u32, read_only: bool) -> Option<Self> {
        let has = |since: Option<(u32, u32)>| {
            since.is_some_and(|(major, minor)| kernel >= KernelVersion { major, minor })
        };
        let known = |word| {
            let rows = FEATURES.iter().filter(|row| row.fs == self.fs && row.word == word);
            rows.filter(|row| has(row.since)).fold(0, |bits, row| bits | row.bit)
        };
        let (incompatible, read_only_compatible) = old(self.fs);
        let too_large = self.block_bytes > largest_block(self.fs, kernel, page_bytes);
        Self {
            compatible: 0,
            incompatible: self.incompatible & !(incompatible | known(Word::Incompatible)),
            read_only_compatible: if read_only {
                0
            } else {
                self.read_only_compatible & !(read_only_compatible | known(Word::ReadOnly))
            },
            block_bytes: if too_large { self.block_bytes } else { 0 },
            ..self
        }
        .unless_empty()
    }

    /// Returns what the checker lacks that has refused to check the file system; `None` when
    /// nothing is known to be lacking.
    pub fn newer_than_checker(self) -> Option<Self> {
        let [compatible, incompatible, read_only_compatible] = of_checkers(self.fs);
        Self {
            compatible: self.compatible & !compatible,
            incompatible: self.incompatible & !incompatible,
            read_only_compatible: self.read_only_compatible & !read_only_compatible,
            block_bytes: 0,
            ..self
        }
        .unless_empty()
    }

    fn unless_empty(self) -> Option<Self> {
        let bits = self.compatible | self.incompatible | self.read_only_compatible;
        (bits | self.block_bytes != 0).then_some(self)
    }
}

impl fmt::Display for Features {
    /// Lists the features by the tools' names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |letter: char, word: Option<Word>, at: u32| {
            let of_fs = FEATURES.iter().filter(|row| row.fs == self.fs && Some(row.word) == word);
            let row = of_fs.clone().find(|row| row.bit == 1 << at);
            // The form in which e2fsprogs writes a feature that it does not know.
            row.map_or_else(|| format!("FEATURE_{letter}{at}"), |row| row.name.to_owned())
        };
        let words = [
            ('C', None, self.compatible),
            ('I', Some(Word::Incompatible), self.incompatible),
            ('R', Some(Word::ReadOnly), self.read_only_compatible),
        ];
        let mut names: Vec<String> = words
            .into_iter()
            .flat_map(|(letter, word, bits)| {
                let set = (0..32).filter(move |at| bits & 1 << at != 0);
                set.map(move |at| name(letter, word, at))
            })
            .collect();
        if self.block_bytes != 0 {
            names.push(format!("blocks of {} bytes", self.block_bytes));
        }
        f.write_str(&names.join(", "))
    }
}

values! {
    (Features, Option<KernelVersion>), pb::Features:
        |wire| {
            let features = Features {
                fs: FsType::from_wire(wire.fs_type)?,
                compatible: wire.compatible,
                incompatible: wire.incompatible,
                read_only_compatible: wire.read_only_compatible,
                block_bytes: wire.block_bytes,
            };
            let kernel = KernelVersion { major: wire.kernel_major, minor: wire.kernel_minor };
            (features, (kernel.major != 0).then_some(kernel))
        },
        |(features, kernel)| pb::Features {
            fs_type: features.fs.to_wire(),
            compatible: features.compatible,
            incompatible: features.incompatible,
            read_only_compatible: features.read_only_compatible,
            block_bytes: features.block_bytes,
            kernel_major: kernel.map_or(0, |kernel| kernel.major),
            kernel_minor: kernel.map_or(0, |kernel| kernel.minor),
        };
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: KernelVersion = KernelVersion { major: 5, minor: 14 };
    const NEW: KernelVersion = KernelVersion { major: 6, minor: 18 };

    fn of(fs: FsType, [compatible, incompatible, read_only_compatible]: [u32; 3]) -> Features {
        Features { fs, compatible, incompatible, read_only_compatible, block_bytes: 4096 }
    }

    #[test]
    fn kernel_release_is_parsed() {
        assert_eq!(KernelVersion::parse("6.18.44-fc-v657"), Some(NEW));
        assert_eq!(KernelVersion::parse("5.14"), Some(OLD));
        assert!(["", "6", "x.1", "6.x"].iter().all(|text| KernelVersion::parse(text).is_none()));
    }

    #[test]
    fn features_that_kernel_lacks_are_named() {
        let (ext4, xfs) = (FsType::Ext4, FsType::Xfs);
        for (features, kernel, read_only, names) in [
            // What mke2fs and mkfs.xfs of Debian 12 set.
            (of(ext4, [0x3c, 0x2c2, 0x46b]), OLD, false, None),
            (of(xfs, [0, 0xb, 0xd]), OLD, false, None),
            (of(ext4, [1 << 15, 1 << 21 | 0x2_0000, 0]), NEW, false, Some("casefold, FEATURE_I21")),
            (of(ext4, [0, 0, 1 << 20]), NEW, false, Some("FEATURE_R20")),
            (of(ext4, [0, 0, 1 << 20]), NEW, true, None),
            (of(ext4, [0, 0, 0x1_0000]), OLD, false, Some("orphan_present")),
            (of(ext4, [0, 0, 0x1_0000]), NEW, false, None),
            (of(xfs, [0, 0xeb, 0]), OLD, false, Some("nrext64, exchange, parent")),
            (of(xfs, [0, 0xeb, 0]), NEW, false, None),
            (of(xfs, [0, 1 << 30, 0]), NEW, true, Some("FEATURE_I30")),
        ] {
            let lacking = features.lacking(kernel, 4096, read_only).map(|some| some.to_string());
            assert_eq!(lacking.as_deref(), names, "{features:?} {kernel}");
        }
    }

    #[test]
    fn block_larger_than_page_depends_on_kernel() {
        let v6_12 = KernelVersion { major: 6, minor: 12 };
        for (fs, kernel, page, block, lacks) in [
            (FsType::Ext4, NEW, 4096, 4096, false),
            (FsType::Ext4, NEW, 4096, 8192, true),
            (FsType::Ext4, NEW, 65_536, 65_536, false),
            (FsType::Ext4, KernelVersion { minor: 19, ..NEW }, 4096, 65_536, false),
            (FsType::Xfs, OLD, 4096, 8192, true),
            (FsType::Xfs, v6_12, 4096, 65_536, false),
        ] {
            let features = Features { block_bytes: block, ..of(fs, [0; 3]) };
            let lacking = features.lacking(kernel, page, false).map(|some| some.to_string());
            assert_eq!(lacking, lacks.then(|| format!("blocks of {block} bytes")), "{fs} {kernel}");
        }
    }

    #[test]
    fn features_newer_than_checker_are_named() {
        for (features, names) in [
            (of(FsType::Ext4, [0x3c | 0x1400, 0x3_e7de, 0x1_f77f]), None),
            (of(FsType::Ext4, [1 << 15, 0x2c2, 0]), Some("FEATURE_C15")),
            (of(FsType::Xfs, [0, 0xff, 0xf]), Some("exchange, parent")),
        ] {
            let newer = features.newer_than_checker().map(|some| some.to_string());
            assert_eq!(newer.as_deref(), names, "{features:?}");
        }
    }
}
