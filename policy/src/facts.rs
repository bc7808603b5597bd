//! What the helper observed itself, as plain values. Nothing here comes from a request.
use ebs_csi_wire::{ContentState, Observation, Signature};

/// The result of reading a limited part of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Every area of `mounts.toml` was read with direct I/O and without an error, and was zero. The
    /// bytes between the areas are unknown.
    Blank,
    /// An ext2, ext3 or ext4 superblock.
    Ext(ExtFacts),
    /// An XFS superblock.
    Xfs(XfsFacts),
    /// A partition table of this kind.
    PartitionTable(Signature),
    /// The signature of a format that the driver does not make.
    Foreign(Signature),
    /// Remains of a file system that the driver could have made: an invalid superblock, or a backup
    /// superblock whose primary superblock is gone.
    Damaged(Signature),
    /// Bytes that are neither zero nor a known signature.
    Unknown {
        /// Offset of the first such byte, in bytes from the start of the disk.
        at: u64,
    },
}

impl Content {
    /// Returns what a refusal reports about the content; `disk_bytes` is the size of the disk.
    #[must_use]
    pub fn seen(&self, disk_bytes: u64) -> Option<Observation> {
        let whole = |bytes: u64| {
            if bytes > disk_bytes { ContentState::CutOff } else { ContentState::Sound }
        };
        let (signature, state) = match self {
            Self::Blank => return None,
            Self::Unknown { at } => return Some(Observation::UnknownBytes { at: *at }),
            Self::Ext(facts) => (facts.level.signature(), whole(facts.bytes)),
            Self::Xfs(facts) if facts.in_progress => (Signature::Xfs, ContentState::Unfinished),
            Self::Xfs(facts) if !facts.sound => (Signature::Xfs, ContentState::Damaged),
            Self::Xfs(facts) => (Signature::Xfs, whole(facts.bytes)),
            Self::PartitionTable(signature) | Self::Foreign(signature) => {
                (*signature, ContentState::Sound)
            }
            Self::Damaged(signature) => (*signature, ContentState::Damaged),
        };
        Some(Observation::Content { signature, state })
    }
}

/// The member of the ext family that wrote a superblock, by its feature flags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExtLevel {
    /// No journal.
    Ext2,
    /// A journal, and no feature that only ext4 reads.
    Ext3,
    /// At least one feature that only ext4 reads.
    #[default]
    Ext4,
}

impl ExtLevel {
    /// Returns the level's name on the wire.
    pub const fn signature(self) -> Signature {
        match self {
            Self::Ext2 => Signature::Ext2,
            Self::Ext3 => Signature::Ext3,
            Self::Ext4 => Signature::Ext4,
        }
    }
}

/// The fields of an ext superblock that decide what happens next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtFacts {
    /// The member of the ext family.
    pub level: ExtLevel,
    /// What e2fsck itself would call clean: no journal to replay, no error recorded, no check due,
    /// a correct checksum.
    pub clean: bool,
    /// The journal must be replayed.
    pub needs_recovery: bool,
    /// The journal may have an area for fast commits.
    pub fast_commit: bool,
    /// Size of the file system, in bytes.
    pub bytes: u64,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Blocks of one group; a remainder smaller than a group may stay unused.
    pub group_blocks: u64,
    /// Identifier in the superblock.
    pub uuid: [u8; 16],
    /// The superblock asks the kernel to keep the file system writable after an error.
    pub continues: bool,
    /// The journal is not in the file system itself, so the kernel would open another disk for the
    /// journal.
    pub outside_journal: bool,
    /// Mount options as bits, which the kernel applies as the file system's own
    /// (`s_default_mount_opts`).
    pub default_options: u32,
    /// Mount options as words, separated by commas (`s_mount_opts`).
    pub default_words: String,
    /// Time of the last full check, in seconds since 1970, as the checker recorded it.
    pub last_check: u64,
    /// The file system was mounted for writing since that check.
    pub mounted: bool,
}

/// The fields of an XFS superblock that decide what happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XfsFacts {
    /// Checksum, version and geometry are plausible.
    pub sound: bool,
    /// `mkfs.xfs` had not finished when it stopped.
    pub in_progress: bool,
    /// Size of the data section, in bytes.
    pub bytes: u64,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Allocation groups.
    pub groups: u32,
    /// Identifier in the superblock.
    pub uuid: [u8; 16],
}

/// What distinguishes an unfinished format of this volume from other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// Identifier that a format of this volume writes.
    pub uuid: [u8; 16],
    /// The disk holds nothing but what a format of this volume writes: every byte is zero or as
    /// such a format writes it.
    pub unfinished: bool,
    /// A checker has read all of the file system since the disk was attached, and nothing but
    /// mounts has written to the disk since then.
    pub examined: bool,
    /// The disk itself was shown to a container, writable, since the disk was attached.
    pub used_raw: bool,
}

/// The kernel's number of a device, as stat(2) reports it (`dev_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber(pub u64);

/// A disk that was identified as the volume's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFacts {
    /// Size now, in bytes.
    pub bytes: u64,
    /// Size of the whole disk, in bytes; differs from `bytes` when the request names a partition.
    pub whole_bytes: u64,
    /// The disk's number.
    pub device: DeviceNumber,
    /// The kernel accepts no writes to it.
    pub read_only: bool,
}

/// What is at a path beneath the kubelet root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathFacts {
    /// Nothing.
    Missing,
    /// A directory that nothing is mounted on.
    Directory,
    /// A regular file that nothing is mounted on.
    File,
    /// Something else that nothing is mounted on.
    Other,
    /// The root of a mount.
    Mounted(MountFacts),
}

/// A mount at a path, and what it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFacts {
    /// The superblock's device; for a bound device node, the device of the node.
    pub device: DeviceNumber,
    /// A device node is bound onto a file.
    pub block: bool,
    /// The mount shows the whole file system, not a directory of it. True for a device node.
    pub whole: bool,
    /// Writes are refused, by the mount or by the superblock.
    pub read_only: bool,
}

/// One of the places where the volume's file system is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMount {
    /// Path beneath the kubelet root; `None` for a mount elsewhere.
    pub path: Option<String>,
    /// As in [`MountFacts`].
    pub read_only: bool,
}

/// The owner of the disk of a mounted device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The volume of the request.
    ThisVolume,
    /// A disk that is not the volume's.
    Another,
    /// The disk has left the node and can no longer be read.
    Gone,
    /// A disk without a serial, for which no earlier identification is known any more.
    Unproved,
}
