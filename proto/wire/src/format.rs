//! Options of a new file system.

use std::fmt;

use crate::FsType;

pub use crate::pb::FormatOptions as UncheckedFormatOptions;

/// How to make a file system; an option that is not given leaves the choice to the tool. Every
/// given number is within the tool's own range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FormatOptions(UncheckedFormatOptions);

/// A format option out of range, or one that the file system does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// A number that the tools would refuse.
    OutOfRange {
        /// The StorageClass key.
        key: &'static str,
        /// The given number.
        given: u64,
        /// The range, in words.
        range: &'static str,
    },
    /// `ext4ClusterSize` without `ext4BigAlloc`.
    ClusterWithoutBigalloc,
    /// The file system has no such option.
    NotOffered {
        /// The StorageClass key.
        key: &'static str,
        /// The requested file system.
        fs: FsType,
    },
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { key, given, range } => {
                write!(f, "{key} is {given}, it must be {range}")
            }
            Self::ClusterWithoutBigalloc => {
                f.write_str("ext4ClusterSize needs ext4BigAlloc to be true")
            }
            Self::NotOffered { key, fs } => {
                write!(
                    f,
                    "{key} is not an option of {fs}: leave it out or choose another file system"
                )
            }
        }
    }
}

impl std::error::Error for FormatError {}

/// Parses a number with an optional suffix k, m or g for the powers of 1024 that the tools know;
/// `None` for zero and for everything else.
#[must_use]
pub fn parse_number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|value| *value > 0)
}

/// mke2fs(8), and mkfs.xfs(8) with checksums.
const BLOCK_SIZE: (u64, u64, &str) = (1024, 65_536, "a power of two from 1024 to 65536");
/// The tools' block size for a volume of 1 GiB or more.
const DEFAULT_BLOCK_SIZE: u64 = 4096;
/// mke2fs(8): from 128 bytes to the block size.
const INODE_SIZE: (u64, u64, &str) = (128, 65_536, "a power of two from 128 to the block size");
/// mkfs.xfs(8) with checksums: from 512 to 2048 bytes, and two inodes to a block.
const XFS_INODE_SIZE: (u64, u64, &str) =
    (512, 2048, "a power of two from 512 to 2048, at most half of the block size");
/// mke2fs(8): a ratio from 1 KiB to 64 MiB.
const BYTES_PER_INODE: (u64, u64, &str) = (1024, 67_108_864, "from 1024 to 67108864");
/// Inode numbers of ext4 have 32 bits.
const NUMBER_OF_INODES: (u64, u64, &str) = (1, 4_294_967_295, "from 1 to 4294967295");
/// mke2fs(8): 2 KiB to 256 MiB.
const CLUSTER_SIZE: (u64, u64, &str) = (2048, 268_435_456, "a power of two from 2048 to 268435456");

impl FormatOptions {
    /// Checks each number against the range that the tools document.
    ///
    /// # Errors
    /// [`FormatError::OutOfRange`] or [`FormatError::ClusterWithoutBigalloc`].
    pub fn check(given: UncheckedFormatOptions) -> Result<Self, FormatError> {
        if given.ext4_cluster_size != 0 && !given.ext4_bigalloc {
            return Err(FormatError::ClusterWithoutBigalloc);
        }
        check_power_of_two("blockSize", given.block_size, BLOCK_SIZE)?;
        check_power_of_two("inodeSize", given.inode_size, INODE_SIZE)?;
        check_range("bytesPerInode", given.bytes_per_inode, BYTES_PER_INODE)?;
        check_range("numberOfInodes", given.number_of_inodes, NUMBER_OF_INODES)?;
        check_power_of_two("ext4ClusterSize", given.ext4_cluster_size, CLUSTER_SIZE)?;
        Ok(Self(given))
    }

    /// Checks that `fs` has every option that is set and takes the size of the inodes. The
    /// `legacy_xfs` setting belongs to the node, not to the volume, so other file systems ignore
    /// it.
    ///
    /// # Errors
    /// [`FormatError::NotOffered`] naming the first option that the file system does not have;
    /// [`FormatError::OutOfRange`].
    pub fn check_for(&self, fs: FsType) -> Result<(), FormatError> {
        let only_ext4 = [
            ("ext4BigAlloc", self.0.ext4_bigalloc),
            ("ext4ClusterSize", self.0.ext4_cluster_size != 0),
            ("ext4EncryptionSupport", self.0.ext4_encryption),
        ];
        let only_ext = [
            ("bytesPerInode", self.0.bytes_per_inode != 0),
            ("numberOfInodes", self.0.number_of_inodes != 0),
        ];
        let refused = match fs {
            FsType::Ext4 => None,
            FsType::Ext3 => only_ext4.iter().find(|(_, set)| *set),
            FsType::Xfs => only_ext4.iter().chain(&only_ext).find(|(_, set)| *set),
        };
        if let Some((key, _)) = refused {
            return Err(FormatError::NotOffered { key, fs });
        }
        let block = Some(self.0.block_size).filter(|size| *size != 0).unwrap_or(DEFAULT_BLOCK_SIZE);
        let (low, high, range) = match fs {
            FsType::Xfs => (XFS_INODE_SIZE.0, XFS_INODE_SIZE.1.min(block / 2), XFS_INODE_SIZE.2),
            FsType::Ext3 | FsType::Ext4 => (INODE_SIZE.0, block, INODE_SIZE.2),
        };
        check_range("inodeSize", self.0.inode_size, (low, high, range))
    }

    /// Returns the options as they are on the wire, 0 for a number that is not given.
    #[must_use]
    pub const fn unchecked(self) -> UncheckedFormatOptions {
        self.0
    }
}

fn check_range(
    key: &'static str,
    given: u64,
    (low, high, range): (u64, u64, &'static str),
) -> Result<(), FormatError> {
    if given == 0 || (low..=high).contains(&given) {
        Ok(())
    } else {
        Err(FormatError::OutOfRange { key, given, range })
    }
}

fn check_power_of_two(
    key: &'static str,
    given: u64,
    range: (u64, u64, &'static str),
) -> Result<(), FormatError> {
    if given != 0 && !given.is_power_of_two() {
        return Err(FormatError::OutOfRange { key, given, range: range.2 });
    }
    check_range(key, given, range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: impl Fn(&mut UncheckedFormatOptions)) -> Result<FormatOptions, FormatError> {
        let mut given = UncheckedFormatOptions::default();
        set(&mut given);
        FormatOptions::check(given)
    }

    #[test]
    fn default_format_options_suit_every_file_system() {
        for fs in FsType::ALL {
            assert_eq!(FormatOptions::default().check_for(*fs), Ok(()));
        }
    }

    #[test]
    fn format_option_outside_range_is_refused() {
        type Set = fn(&mut UncheckedFormatOptions, u64);
        for (set, good, bad) in [
            ((|o, n| o.block_size = n) as Set, 4096, &[256, 4095, 131_072][..]),
            (|o, n| o.inode_size = n, 512, &[64, 300]),
            (|o, n| o.bytes_per_inode = n, 5000, &[1023]),
            (|o, n| o.number_of_inodes = n, 1, &[1 << 32]),
        ] {
            assert!(with(|o| set(o, good)).is_ok(), "{good}");
            assert!(bad.iter().all(|n| with(|o| set(o, *n)).is_err()), "{bad:?}");
        }
        let error = with(|o| o.block_size = 3000).unwrap_err().to_string();
        assert!(error.contains("blockSize is 3000") && error.contains("power of two"), "{error}");
    }

    /// As mke2fs 1.47.0 and mkfs.xfs 6.1 refuse them.
    #[test]
    fn inode_size_fits_block_of_file_system() {
        for (block, inode, ext, xfs) in [
            (0, 256, true, false),
            (0, 512, true, true),
            (0, 2048, true, true),
            (0, 4096, true, false),
            (0, 8192, false, false),
            (1024, 512, true, true),
            (1024, 1024, true, false),
            (1024, 2048, false, false),
        ] {
            let options = with(|o| (o.block_size, o.inode_size) = (block, inode)).unwrap();
            let taken =
                [FsType::Ext4, FsType::Ext3, FsType::Xfs].map(|fs| options.check_for(fs).is_ok());
            assert_eq!(taken, [ext, ext, xfs], "{block} {inode}");
        }
    }

    #[test]
    fn number_may_have_suffix_and_is_positive() {
        for (text, number) in [
            ("4096", Some(4096)),
            ("4k", Some(4096)),
            ("1M", Some(1 << 20)),
            ("2g", Some(2 << 30)),
            ("0", None),
            ("", None),
            ("k", None),
            ("-1", None),
            ("4 k", None),
            ("18446744073709551615k", None),
        ] {
            assert_eq!(parse_number(text), number, "{text:?}");
        }
    }

    #[test]
    fn ext4_cluster_size_needs_bigalloc() {
        let with = |ext4_bigalloc| {
            with(|o| (o.ext4_cluster_size, o.ext4_bigalloc) = (65_536, ext4_bigalloc))
        };
        assert_eq!(with(false), Err(FormatError::ClusterWithoutBigalloc));
        assert!(with(true).is_ok());
    }

    #[test]
    fn options_are_offered_per_file_system() {
        type Set = fn(&mut UncheckedFormatOptions);
        for (set, ext4, ext3, xfs) in [
            ((|o| o.number_of_inodes = 1000) as Set, true, true, false),
            (|o| o.bytes_per_inode = 4096, true, true, false),
            (|o| o.ext4_bigalloc = true, true, false, false),
            (|o| o.ext4_encryption = true, true, false, false),
            (|o| o.legacy_xfs = true, true, true, true),
        ] {
            let options = with(set).unwrap();
            let offered =
                [FsType::Ext4, FsType::Ext3, FsType::Xfs].map(|fs| options.check_for(fs).is_ok());
            assert_eq!(offered, [ext4, ext3, xfs], "{options:?}");
        }
    }
}
