//! What the node-agent may ask of the mount-helper.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use prost::Message;

use crate::closed::closed_enum;
use crate::{DeviceName, FormatOptions, FsType, KubeletPath, Malformed, MountFlag, VolumeId, pb};

mod encoding;

closed_enum! {
    /// What the controller said of the volume's first content.
    Origin mirrors Origin, "origin" {
        /// The controller did not say.
        Unknown => "unknown",
        /// Made empty.
        Blank => "blank",
        /// Restored from a snapshot or cloned: never formatted.
        Copy => "copy",
    }
}

closed_enum! {
    /// Who wrote what a volume is a copy of. Means something only beside [`Origin::Copy`].
    Source mirrors Source, "source" {
        /// Somebody else, or a controller of the release before.
        Elsewhere => "elsewhere",
        /// This driver, for this cluster.
        Own => "own",
        /// The controller could not see the source any more.
        Untold => "untold",
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the caller, echoed in the reply.
    pub id: u64,
    /// How long the caller waits for the answer (whole milliseconds on the wire, at most about 49 days). The operation
    /// itself is not bounded by it: when it passes, the answer is `Pending`, and a repeated request joins the operation.
    pub wait: Duration,
    /// What is asked.
    pub operation: Operation,
}

/// The closed table of what may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The first request of a connection.
    Hello(Hello),
    /// Make the volume's file system ready at the staging path.
    Stage(Stage),
    /// Undo Stage.
    Unstage(Unstage),
    /// Show the staged file system at the target path.
    PublishFilesystem(PublishFilesystem),
    /// Show the disk itself at the target path.
    PublishBlock(PublishBlock),
    /// Undo either publish.
    Unpublish(Unpublish),
    /// Grow the file system to the size of its disk.
    Expand(Expand),
    /// Space and inodes in use.
    Stats(Stats),
    /// EBS's log page of the disk.
    NvmeStatistics(NvmeStatistics),
    /// What the helper holds.
    Inspect(Inspect),
}

/// Versions of the protocol that the caller speaks, both inclusive; `1 <= oldest <= newest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

impl Hello {
    /// What this release speaks.
    pub const OURS: Self = Self {
        oldest: crate::PROTOCOL_OLDEST,
        newest: crate::PROTOCOL_NEWEST,
    };

    /// The newest version that both sides speak.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u32> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

/// How to find and recognise the volume's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The volume; its serial identifies the disk.
    pub volume: VolumeId,
    /// The name that EC2 was told, a hint only.
    pub device_hint: Option<DeviceName>,
    /// `None`: the whole disk.
    pub partition: Option<NonZeroU32>,
    /// The volume's size when it was attached, in bytes; `None` when the controller did not say.
    pub size_at_attach: Option<NonZeroU64>,
    /// What the controller said of the first content.
    pub origin: Origin,
    /// What it said of the source of a copy.
    pub source: Source,
}

/// Make the volume's file system ready at the staging path: format when blank, check, mount, grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The disk.
    pub disk: Disk,
    /// Where the file system is mounted.
    pub staging: KubeletPath,
    /// The file system that is expected or made.
    pub fs: FsType,
    /// Mount read-only; never format or repair.
    pub read_only: bool,
    /// Mount flags, at most 32.
    pub flags: Vec<MountFlag>,
    /// How to make the file system.
    pub format: FormatOptions,
}

/// Undo [`Stage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstage {
    /// The volume.
    pub volume: VolumeId,
    /// Where it was staged.
    pub staging: KubeletPath,
}

/// Show the staged file system at the target path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishFilesystem {
    /// The disk, whose mount the staging path must be.
    pub disk: Disk,
    /// Where it is staged.
    pub staging: KubeletPath,
    /// Where it appears.
    pub target: KubeletPath,
    /// Read-only at the target.
    pub read_only: bool,
    /// Mount flags, at most 32.
    pub flags: Vec<MountFlag>,
}

/// Show the disk itself at the target path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishBlock {
    /// The disk.
    pub disk: Disk,
    /// Where it appears.
    pub target: KubeletPath,
    /// Make the disk refuse writes.
    pub read_only: bool,
}

/// Undo either publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpublish {
    /// The volume.
    pub volume: VolumeId,
    /// Where it appears.
    pub target: KubeletPath,
}

/// Grow the file system to the size of its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expand {
    /// The volume.
    pub volume: VolumeId,
    /// A staging or target path of the volume.
    pub path: KubeletPath,
    /// The disk must have at least these bytes.
    pub required_bytes: Option<NonZeroU64>,
    /// The disk must not have more bytes than these.
    pub limit_bytes: Option<NonZeroU64>,
}

/// Space and inodes in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The volume.
    pub volume: VolumeId,
    /// A staging or target path of the volume.
    pub path: KubeletPath,
}

/// Log page 0xD0 of the volume's NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeStatistics {
    /// The volume.
    pub volume: VolumeId,
}

/// What the helper holds: staged and published volumes, running operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inspect {
    /// Volumes to skip: an inventory larger than a frame comes in pages.
    pub first: u32,
}

impl Request {
    /// Reads a message of the wire.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that no correct caller sends; the connection is of no further use then.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        pb::Request::decode(bytes)
            .map_err(|_| Malformed::NotProtobuf)?
            .try_into()
    }

    /// Writes the message of the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        pb::Request::from(self.clone()).encode_to_vec()
    }
}

impl Operation {
    /// A short name for logs and metric labels.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Stage(_) => "stage",
            Self::Unstage(_) => "unstage",
            Self::PublishFilesystem(_) => "publish-filesystem",
            Self::PublishBlock(_) => "publish-block",
            Self::Unpublish(_) => "unpublish",
            Self::Expand(_) => "expand",
            Self::Stats(_) => "stats",
            Self::NvmeStatistics(_) => "nvme-statistics",
            Self::Inspect(_) => "inspect",
        }
    }

    /// The volume that is asked about; `None` for Hello and Inspect.
    #[must_use]
    pub const fn volume(&self) -> Option<&VolumeId> {
        match self {
            Self::Hello(_) | Self::Inspect(_) => None,
            Self::Stage(asked) => Some(&asked.disk.volume),
            Self::Unstage(asked) => Some(&asked.volume),
            Self::PublishFilesystem(asked) => Some(&asked.disk.volume),
            Self::PublishBlock(asked) => Some(&asked.disk.volume),
            Self::Unpublish(asked) => Some(&asked.volume),
            Self::Expand(asked) => Some(&asked.volume),
            Self::Stats(asked) => Some(&asked.volume),
            Self::NvmeStatistics(asked) => Some(&asked.volume),
        }
    }
}
