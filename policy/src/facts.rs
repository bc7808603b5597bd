//! What the helper saw for itself, as plain values. Nothing here comes from a request.
use ebs_csi_wire::{ContentState, Seen, Signature};

/// What a bounded look at a disk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Every area of `mounts.toml` was read, directly and successfully, and was zero. Nothing is
    /// known of what lies between them.
    Blank,
    /// An ext2, ext3 or ext4 superblock.
    Ext(ExtFacts),
    /// An XFS superblock.
    Xfs(XfsFacts),
    /// A partition table of this kind.
    PartitionTable(Signature),
    /// The signature of something that the driver does not make.
    Foreign(Signature),
    /// What is left of a file system that the driver could have made: a superblock that cannot be right, or a backup of one
    /// whose first is gone.
    Damaged(Signature),
    /// Bytes that are neither zero nor a known signature.
    Unknown {
        /// Offset of the first, in bytes from the start of the disk.
        at: u64,
    },
}

impl Content {
    /// What a refusal tells of it; `disk_bytes` is the size of the disk.
    #[must_use]
    pub fn seen(&self, disk_bytes: u64) -> Option<Seen> {
        let whole = |bytes: u64| {
            if bytes > disk_bytes {
                ContentState::CutOff
            } else {
                ContentState::Sound
            }
        };
        let (signature, state) = match self {
            Self::Blank => return None,
            Self::Unknown { at } => return Some(Seen::UnknownBytes { at: *at }),
            Self::Ext(facts) => (facts.level.signature(), whole(facts.bytes)),
            Self::Xfs(facts) if facts.in_progress => (Signature::Xfs, ContentState::Unfinished),
            Self::Xfs(facts) if !facts.sound => (Signature::Xfs, ContentState::Damaged),
            Self::Xfs(facts) => (Signature::Xfs, whole(facts.bytes)),
            Self::PartitionTable(signature) | Self::Foreign(signature) => {
                (*signature, ContentState::Sound)
            }
            Self::Damaged(signature) => (*signature, ContentState::Damaged),
        };
        Some(Seen::Content { signature, state })
    }
}

/// Which of the ext family wrote a superblock, by its feature flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtLevel {
    /// No journal.
    Ext2,
    /// A journal and nothing that only ext4 reads.
    Ext3,
    /// At least one feature that only ext4 reads.
    Ext4,
}

impl ExtLevel {
    /// Its name on the wire.
    #[must_use]
    pub const fn signature(self) -> Signature {
        match self {
            Self::Ext2 => Signature::Ext2,
            Self::Ext3 => Signature::Ext3,
            Self::Ext4 => Signature::Ext4,
        }
    }
}

/// The fields of an ext superblock that decide what happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtFacts {
    /// Generation.
    pub level: ExtLevel,
    /// What e2fsck itself would call clean: nothing to replay, no error noted, no check due, checksum right.
    pub clean: bool,
    /// The journal must be replayed.
    pub needs_recovery: bool,
    /// Size of the file system, in bytes.
    pub bytes: u64,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Blocks of one group; a rest smaller than a group may stay unused.
    pub group_blocks: u64,
    /// Identifier in the superblock.
    pub uuid: [u8; 16],
    /// After an error the file system goes on being written to, if its superblock has its way.
    pub continues: bool,
    /// The journal is not in the file system itself: the kernel would open another disk for it.
    pub outside_journal: bool,
    /// Numbered mount options that the kernel takes for the file system's own (`s_default_mount_opts`).
    pub default_options: u32,
    /// The same in words, separated by commas (`s_mount_opts`).
    pub default_words: String,
    /// When it was checked in full last, in seconds since 1970, as the checker noted it.
    pub last_check: u64,
    /// It was mounted for writing since then.
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

/// What tells a format of this volume that never finished from anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// Identifier that a format of this volume writes.
    pub uuid: [u8; 16],
    /// Nothing stands on the disk but what a format of this volume writes: every byte is zero or as it makes it.
    pub unfinished: bool,
    /// A checker has looked at all of it since the disk was attached, and nothing but mounts has written to it since.
    pub examined: bool,
    /// The disk itself was shown to a container, writable, since it was attached.
    pub used_raw: bool,
}

/// A disk that was identified as the volume's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFacts {
    /// Size now, in bytes.
    pub bytes: u64,
    /// Size of the whole disk, in bytes: another one where a partition was asked for.
    pub whole_bytes: u64,
    /// Kernel's device number.
    pub device: u64,
}

/// What stands at a path beneath the kubelet root.
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
    /// Superblock's device, or for a bound device node the device that the node names.
    pub device: u64,
    /// A device node is bound onto a file.
    pub block: bool,
    /// The whole file system is shown, not a directory of it. True for a device node.
    pub whole: bool,
    /// Writes are refused, by the mount or by the superblock.
    pub read_only: bool,
}

/// One of the places where the volume's file system is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMount {
    /// Path beneath the kubelet root; None when it is elsewhere.
    pub path: Option<String>,
    /// As in [`MountFacts`].
    pub read_only: bool,
}

/// Whose disk a mounted device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The volume of the request.
    ThisVolume,
    /// A disk that is not the volume's.
    Another,
    /// The disk has left the node: nothing can be read of it any more.
    Gone,
    /// A disk without a serial, and nothing is known any more of what it was taken for.
    Unproved,
}
