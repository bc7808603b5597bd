//! The node-agent's requests to the mount-helper.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use prost::Message;

use crate::closed::closed_enum;
use crate::{DeviceName, FsType, KeyStep, KubeletPath, Malformed, MountFlag, VolumeId, pb};

mod encoding;

// Messages whose fields have no other types on the wire, and no bound here.
pub use crate::pb::{FormatOption, Inspect};

closed_enum! {
    /// The controller's report about the volume's first content.
    Origin mirrors Origin, "origin" {
        /// The controller did not report it.
        Unknown => "unknown",
        /// Made empty.
        Blank => "blank",
        /// Restored from a snapshot or cloned: never formatted.
        Copy => "copy",
    }
}

closed_enum! {
    /// Who wrote the source of a copy. Meaningful only with [`Origin::Copy`].
    Source mirrors Source, "source" {
        /// Somebody else wrote it, or the controller is of the previous release.
        Elsewhere => "elsewhere",
        /// This driver wrote it, for this cluster.
        Own => "own",
        /// The controller could no longer see the source.
        Untold => "untold",
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the caller and repeated in the reply.
    pub id: u64,
    /// How long the caller waits for the answer (whole milliseconds on the wire, at most about 49
    /// days). The wait does not bound the operation itself: when the wait passes, the answer is
    /// `Pending`, and a repeated request joins the operation.
    pub wait: Duration,
    /// The requested operation.
    pub operation: Operation,
}

/// The closed table of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The first request of a connection.
    Hello(Hello),
    /// Prepares the volume's file system at the staging path.
    Stage(Stage),
    /// Undoes Stage.
    Unstage(Unstage),
    /// Shows the staged file system at the target path.
    PublishFilesystem(PublishFilesystem),
    /// Shows the disk itself at the target path.
    PublishBlock(PublishBlock),
    /// Undoes either publish.
    Unpublish(Unpublish),
    /// Grows the file system to the size of its disk.
    Expand(Expand),
    /// Returns space and inodes in use.
    Stats(Stats),
    /// Returns EBS's log page of the disk.
    NvmeStatistics(NvmeStatistics),
    /// Returns what the helper holds.
    Inspect(Inspect),
}

/// Versions of the protocol that the caller speaks, both inclusive; `1 <= oldest <= newest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version.
    pub oldest: u32,
    /// The newest version.
    pub newest: u32,
    /// The caller's part in the proof of a key.
    pub key: KeyStep,
}

impl Hello {
    /// The versions that this release speaks over a unix socket.
    pub const OURS: Self =
        Self { oldest: crate::PROTOCOL_OLDEST, newest: crate::PROTOCOL_NEWEST, key: KeyStep::None };

    /// Returns the Hello of the version in which both sides prove a key.
    #[must_use]
    pub const fn with_key(step: KeyStep) -> Self {
        Self { oldest: crate::PROTOCOL_WITH_KEY, newest: crate::PROTOCOL_WITH_KEY, key: step }
    }

    /// Returns the newest version that both sides speak.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u32> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

/// How to find and identify the volume's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The volume; its serial identifies the disk.
    pub volume: VolumeId,
    /// The device name that EC2 was given: a hint for a disk with a serial. It identifies only a
    /// disk without one.
    pub device_hint: Option<DeviceName>,
    /// The partition; `None`: the whole disk.
    pub partition: Option<NonZeroU32>,
    /// The volume's size when it was attached, in bytes; `None` when the controller did not report
    /// it.
    pub size_at_attach: Option<NonZeroU64>,
    /// The controller's report about the first content.
    pub origin: Origin,
    /// The controller's report about the source of a copy.
    pub source: Source,
}

/// Prepares the volume's file system at the staging path: formats a blank disk, checks, mounts and
/// grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The disk.
    pub disk: Disk,
    /// Where the file system is mounted.
    pub staging: KubeletPath,
    /// The file system that is expected or made.
    pub fs: FsType,
    /// Mount read-only; do not format or repair.
    pub read_only: bool,
    /// Mount flags, at most 32.
    pub flags: Vec<MountFlag>,
    /// How to make the file system. Not checked.
    pub format: Vec<FormatOption>,
}

/// Undoes [`Stage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstage {
    /// The volume.
    pub volume: VolumeId,
    /// Where it was staged.
    pub staging: KubeletPath,
}

/// Shows the staged file system at the target path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishFilesystem {
    /// The disk, whose mount must be at the staging path.
    pub disk: Disk,
    /// Where it is staged.
    pub staging: KubeletPath,
    /// The target path.
    pub target: KubeletPath,
    /// Read-only at the target.
    pub read_only: bool,
    /// Mount flags, at most 32.
    pub flags: Vec<MountFlag>,
}

/// Shows the disk itself at the target path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishBlock {
    /// The disk.
    pub disk: Disk,
    /// The target path.
    pub target: KubeletPath,
    /// Make the disk refuse writes.
    pub read_only: bool,
}

/// Undoes either publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpublish {
    /// The volume.
    pub volume: VolumeId,
    /// The target path.
    pub target: KubeletPath,
}

/// Grows the file system to the size of its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expand {
    /// The volume.
    pub volume: VolumeId,
    /// A staging or target path of the volume.
    pub path: KubeletPath,
    /// The least size of the disk, in bytes.
    pub required_bytes: Option<NonZeroU64>,
    /// The greatest size of the disk, in bytes.
    pub limit_bytes: Option<NonZeroU64>,
}

/// Requests space and inodes in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The volume.
    pub volume: VolumeId,
    /// A staging or target path of the volume.
    pub path: KubeletPath,
}

/// Requests log page 0xD0 of the volume's NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeStatistics {
    /// The volume.
    pub volume: VolumeId,
}

impl Request {
    /// Decodes a wire message.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that no correct caller sends; the connection cannot be used
    /// afterwards.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        pb::Request::decode(bytes).map_err(|_| Malformed::NotProtobuf)?.try_into()
    }

    /// Encodes the wire message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        pb::Request::from(self.clone()).encode_to_vec()
    }
}

impl Operation {
    /// Returns a short name for logs and metric labels.
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

    /// Returns the volume of the request; `None` for Hello and Inspect.
    #[must_use]
    pub const fn volume(&self) -> Option<&VolumeId> {
        match self {
            Self::Hello(_) | Self::Inspect(_) => None,
            Self::Stage(request) => Some(&request.disk.volume),
            Self::Unstage(request) => Some(&request.volume),
            Self::PublishFilesystem(request) => Some(&request.disk.volume),
            Self::PublishBlock(request) => Some(&request.disk.volume),
            Self::Unpublish(request) => Some(&request.volume),
            Self::Expand(request) => Some(&request.volume),
            Self::Stats(request) => Some(&request.volume),
            Self::NvmeStatistics(request) => Some(&request.volume),
        }
    }
}
