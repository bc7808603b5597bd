//! What the node-agent may ask of the mount-helper.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use prost::Message;

use crate::closed::closed_enum;
use crate::format::{FormatOptions, UncheckedFormatOptions};
use crate::malformed::{Malformed, bounded, required};
use crate::mount::FLAGS_LIMIT;
use crate::{DeviceName, FsType, KubeletPath, MountFlag, VolumeId, pb};

/// Partition numbers end where the kernel's minor numbers do.
const PARTITION_LIMIT: u32 = 255;

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

impl TryFrom<pb::Request> for Request {
    type Error = Malformed;

    fn try_from(wire: pb::Request) -> Result<Self, Malformed> {
        use pb::request::Operation as Wire;
        let operation = match required(wire.operation, "operation")? {
            Wire::Hello(asked) => Operation::Hello(asked.try_into()?),
            Wire::Stage(asked) => Operation::Stage(asked.try_into()?),
            Wire::Unstage(asked) => Operation::Unstage(Unstage {
                volume: VolumeId::parse(&asked.volume_id)?,
                staging: KubeletPath::parse(&asked.staging_path)?,
            }),
            Wire::PublishFilesystem(asked) => Operation::PublishFilesystem(PublishFilesystem {
                disk: required(asked.disk, "disk")?.try_into()?,
                staging: KubeletPath::parse(&asked.staging_path)?,
                target: KubeletPath::parse(&asked.target_path)?,
                read_only: asked.read_only,
                flags: flags_from(&asked.flags)?,
            }),
            Wire::PublishBlock(asked) => Operation::PublishBlock(PublishBlock {
                disk: required(asked.disk, "disk")?.try_into()?,
                target: KubeletPath::parse(&asked.target_path)?,
                read_only: asked.read_only,
            }),
            Wire::Unpublish(asked) => Operation::Unpublish(Unpublish {
                volume: VolumeId::parse(&asked.volume_id)?,
                target: KubeletPath::parse(&asked.target_path)?,
            }),
            Wire::Expand(asked) => Operation::Expand(Expand {
                volume: VolumeId::parse(&asked.volume_id)?,
                path: KubeletPath::parse(&asked.volume_path)?,
                required_bytes: NonZeroU64::new(asked.required_bytes),
                limit_bytes: NonZeroU64::new(asked.limit_bytes),
            }),
            Wire::Stats(asked) => Operation::Stats(Stats {
                volume: VolumeId::parse(&asked.volume_id)?,
                path: KubeletPath::parse(&asked.volume_path)?,
            }),
            Wire::NvmeStatistics(asked) => Operation::NvmeStatistics(NvmeStatistics {
                volume: VolumeId::parse(&asked.volume_id)?,
            }),
            Wire::Inspect(asked) => Operation::Inspect(Inspect { first: asked.first }),
        };
        Ok(Self {
            id: wire.id,
            wait: Duration::from_millis(wire.wait_ms.into()),
            operation,
        })
    }
}

impl From<Request> for pb::Request {
    fn from(request: Request) -> Self {
        use pb::request::Operation as Wire;
        let operation = match request.operation {
            Operation::Hello(asked) => Wire::Hello(pb::Hello {
                oldest: asked.oldest,
                newest: asked.newest,
            }),
            Operation::Stage(asked) => Wire::Stage(asked.into()),
            Operation::Unstage(asked) => Wire::Unstage(pb::Unstage {
                volume_id: asked.volume.to_string(),
                staging_path: asked.staging.to_string(),
            }),
            Operation::PublishFilesystem(asked) => Wire::PublishFilesystem(pb::PublishFilesystem {
                disk: Some(asked.disk.into()),
                staging_path: asked.staging.to_string(),
                target_path: asked.target.to_string(),
                read_only: asked.read_only,
                flags: flags_to(&asked.flags),
            }),
            Operation::PublishBlock(asked) => Wire::PublishBlock(pb::PublishBlock {
                disk: Some(asked.disk.into()),
                target_path: asked.target.to_string(),
                read_only: asked.read_only,
            }),
            Operation::Unpublish(asked) => Wire::Unpublish(pb::Unpublish {
                volume_id: asked.volume.to_string(),
                target_path: asked.target.to_string(),
            }),
            Operation::Expand(asked) => Wire::Expand(pb::Expand {
                volume_id: asked.volume.to_string(),
                volume_path: asked.path.to_string(),
                required_bytes: number(asked.required_bytes),
                limit_bytes: number(asked.limit_bytes),
            }),
            Operation::Stats(asked) => Wire::Stats(pb::Stats {
                volume_id: asked.volume.to_string(),
                volume_path: asked.path.to_string(),
            }),
            Operation::NvmeStatistics(asked) => Wire::NvmeStatistics(pb::NvmeStatistics {
                volume_id: asked.volume.to_string(),
            }),
            Operation::Inspect(asked) => Wire::Inspect(pb::Inspect { first: asked.first }),
        };
        Self {
            id: request.id,
            wait_ms: u32::try_from(request.wait.as_millis()).unwrap_or(u32::MAX),
            operation: Some(operation),
        }
    }
}

impl TryFrom<pb::Hello> for Hello {
    type Error = Malformed;

    fn try_from(wire: pb::Hello) -> Result<Self, Malformed> {
        if wire.oldest == 0 || wire.newest < wire.oldest {
            return Err(Malformed::Invalid { field: "hello" });
        }
        Ok(Self {
            oldest: wire.oldest,
            newest: wire.newest,
        })
    }
}

impl TryFrom<pb::Disk> for Disk {
    type Error = Malformed;

    fn try_from(wire: pb::Disk) -> Result<Self, Malformed> {
        if wire.partition > PARTITION_LIMIT {
            return Err(Malformed::Invalid { field: "partition" });
        }
        Ok(Self {
            volume: VolumeId::parse(&wire.volume_id)?,
            device_hint: match wire.device_hint.as_str() {
                "" => None,
                hint => Some(DeviceName::parse(hint)?),
            },
            partition: NonZeroU32::new(wire.partition),
            size_at_attach: NonZeroU64::new(wire.size_at_attach),
            origin: Origin::from_wire(wire.origin)?,
        })
    }
}

impl From<Disk> for pb::Disk {
    fn from(disk: Disk) -> Self {
        Self {
            volume_id: disk.volume.to_string(),
            device_hint: disk
                .device_hint
                .map(|hint| hint.to_string())
                .unwrap_or_default(),
            partition: disk.partition.map_or(0, NonZeroU32::get),
            size_at_attach: number(disk.size_at_attach),
            origin: disk.origin.to_wire(),
        }
    }
}

impl TryFrom<pb::Stage> for Stage {
    type Error = Malformed;

    fn try_from(wire: pb::Stage) -> Result<Self, Malformed> {
        let format = wire.format.unwrap_or_default();
        Ok(Self {
            disk: required(wire.disk, "disk")?.try_into()?,
            staging: KubeletPath::parse(&wire.staging_path)?,
            fs: FsType::from_wire(wire.fs_type)?,
            read_only: wire.read_only,
            flags: flags_from(&wire.flags)?,
            format: FormatOptions::check(UncheckedFormatOptions {
                block_size: format.block_size,
                inode_size: format.inode_size,
                bytes_per_inode: format.bytes_per_inode,
                number_of_inodes: format.number_of_inodes,
                ext4_bigalloc: format.ext4_bigalloc,
                ext4_cluster_size: format.ext4_cluster_size,
                ext4_encryption: format.ext4_encryption,
                legacy_xfs: format.legacy_xfs,
            })?,
        })
    }
}

impl From<Stage> for pb::Stage {
    fn from(stage: Stage) -> Self {
        let format = stage.format.unchecked();
        Self {
            disk: Some(stage.disk.into()),
            staging_path: stage.staging.to_string(),
            fs_type: stage.fs.to_wire(),
            read_only: stage.read_only,
            flags: flags_to(&stage.flags),
            format: Some(pb::FormatOptions {
                block_size: format.block_size,
                inode_size: format.inode_size,
                bytes_per_inode: format.bytes_per_inode,
                number_of_inodes: format.number_of_inodes,
                ext4_bigalloc: format.ext4_bigalloc,
                ext4_cluster_size: format.ext4_cluster_size,
                ext4_encryption: format.ext4_encryption,
                legacy_xfs: format.legacy_xfs,
            }),
        }
    }
}

fn flags_from(wire: &[pb::MountFlag]) -> Result<Vec<MountFlag>, Malformed> {
    bounded(wire.len(), FLAGS_LIMIT, "flags")?;
    wire.iter()
        .map(|flag| {
            let value = (!flag.value.is_empty()).then_some(flag.value.as_str());
            MountFlag::new(&flag.name, value).map_err(Malformed::from)
        })
        .collect()
}

fn flags_to(flags: &[MountFlag]) -> Vec<pb::MountFlag> {
    flags
        .iter()
        .map(|flag| pb::MountFlag {
            name: flag.name().to_owned(),
            value: flag.value().unwrap_or_default().to_owned(),
        })
        .collect()
}

fn number(value: Option<NonZeroU64>) -> u64 {
    value.map_or(0, NonZeroU64::get)
}
