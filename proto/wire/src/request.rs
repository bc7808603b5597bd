//! The node-agent's requests to the mount-helper: the table of all requests, and the message of
//! each. The broker passes a part of some on to a runner, as a job.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use prost::Message as _;

use crate::closed::closed_enum;
use crate::codec::{Wire, message, one_of, same_on_wire, values};
use crate::malformed::required;
use crate::properties::{CHANGE, LOOK, RequestProperties, Slots, WorkerClass, requests};
use crate::reply::{
    Done, Expanded, Holding, Inventory, LogPage, OperationKind, Outcome, Staged, Usage, Welcome,
};
use crate::{
    AttachedAt, DeviceName, FsType, Hello, KubeletPath, Malformed, MountFlag, VolumeId, pb,
};

// Messages whose fields have no other type on the wire, and no bound.
pub use crate::pb::{FormatOption, Inspect};

/// Partition numbers are limited by the kernel's minor numbers.
const PARTITION_LIMIT: u32 = 255;

requests! {
    /// The first request of a connection.
    Hello => Welcome, "hello", RequestProperties { workers: WorkerClass::Inspect, ..LOOK };
    /// Prepares the volume's file system at the staging path: formats a blank disk, checks, mounts
    /// and grows.
    Stage of disk.volume => Staged, "stage", RequestProperties {
        slots: Slots::Slow,
        workers: WorkerClass::Disk,
        kind: OperationKind::Stage,
        may_take_long: true,
        ..CHANGE
    };
    /// Undoes Stage.
    Unstage of volume => Done, "unstage", RequestProperties {
        slots: Slots::Slow,
        workers: WorkerClass::Release,
        kind: OperationKind::Unstage,
        ..CHANGE
    };
    /// Shows the staged file system at the target path.
    PublishFilesystem of disk.volume => Done, "publish-filesystem", RequestProperties {
        kind: OperationKind::Publish,
        ..CHANGE
    };
    /// Shows the disk itself at the target path.
    PublishBlock of disk.volume => Done, "publish-block", RequestProperties {
        workers: WorkerClass::Disk,
        kind: OperationKind::Publish,
        ..CHANGE
    };
    /// Undoes either publish.
    Unpublish of volume => Done, "unpublish", RequestProperties {
        kind: OperationKind::Unpublish,
        ..CHANGE
    };
    /// Grows the file system to the size of its disk.
    Expand of volume => Expanded, "expand", RequestProperties {
        slots: Slots::Slow,
        workers: WorkerClass::Disk,
        kind: OperationKind::Expand,
        may_take_long: true,
        ..CHANGE
    };
    /// Requests space and inodes in use.
    Stats of volume => Usage, "stats", LOOK;
    /// Requests log page 0xD0 of the volume's NVMe controller.
    NvmeStatistics of volume => LogPage, "nvme-statistics", LOOK;
    /// Requests what the helper holds.
    Inspect => Inventory, "inspect", RequestProperties {
        workers: WorkerClass::Inspect,
        // A repeated request cannot join this one.
        least_wait: Duration::from_secs(10),
        ..LOOK
    };
    /// Requests whether anything on the node holds the volume.
    Held of volume => Holding, "held", RequestProperties { workers: WorkerClass::Mount, ..LOOK };
    /// Promises not to stage or publish the volume while it stays attached.
    Promise of volume => Done, "promise", RequestProperties { success_is_logged: false, ..CHANGE };
}

/// The message of a request.
pub trait HelperRequest: Into<Operation> {
    /// The answer, when nothing prevents the operation.
    type Answer: TryFrom<Outcome> + Into<Outcome>;
}

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

values! {
    FsType, i32: |wire| Self::from_wire(wire)?, |value| value.to_wire();
    Origin, i32: |wire| Self::from_wire(wire)?, |value| value.to_wire();
    Source, i32: |wire| Self::from_wire(wire)?, |value| value.to_wire();
    MountFlag, pb::MountFlag:
        |wire| Self::new(&wire.name, Some(wire.value.as_str()).filter(|value| !value.is_empty()))?,
        |flag| pb::MountFlag {
            name: flag.name().to_owned(),
            value: flag.value().unwrap_or_default().to_owned(),
        };
}

message! {
    /// How to find and identify the volume's disk.
    Disk, checked by (check_partition) {
        /// The volume; its serial identifies the disk.
        volume: VolumeId = volume_id,
        /// The device name that EC2 was given: a hint for a disk with a serial. It identifies only
        /// a disk without one.
        device_hint: Option<DeviceName> = device_hint,
        /// `None`: the whole disk.
        partition: Option<NonZeroU32> = partition,
        /// The volume's size when it was attached, in bytes; `None` when the controller did not
        /// report it.
        size_at_attach: Option<NonZeroU64> = size_at_attach,
        /// The controller's report about the first content.
        origin: Origin = origin,
        /// The controller's report about the source of a copy.
        source: Source = source,
        /// When EC2 accepted the attach; `None` when the controller did not report it.
        attached_at: Option<AttachedAt> = attached_at,
    }
}

fn check_partition(disk: &Disk) -> Result<(), Malformed> {
    let in_range = disk.partition.is_none_or(|number| number.get() <= PARTITION_LIMIT);
    if in_range { Ok(()) } else { Err(Malformed::Invalid { field: "partition" }) }
}

message! {
    Stage, checked by (|stage: &Self| MountFlag::check_list(&stage.flags)) {
        disk: Disk = disk or missing "disk",
        staging @ Change [Stage] = staging_path,
        /// The file system that is expected or made.
        fs: FsType = fs_type,
        /// Mount read-only; do not format or repair.
        read_only: bool = read_only,
        flags: Vec<MountFlag> = flags,
        /// How to make the file system. Not checked.
        format: Vec<FormatOption> = format,
    }
}

message! {
    Unstage {
        volume: VolumeId = volume_id,
        staging @ Change [Stage, Unstage] = staging_path,
    }
}

message! {
    PublishFilesystem, checked by (|publish: &Self| MountFlag::check_list(&publish.flags)) {
        /// The disk, whose mount must be at the staging path.
        disk: Disk = disk or missing "disk",
        staging @ Look [Stage] = staging_path,
        target @ Change [PublishFilesystem] = target_path,
        /// Read-only at the target.
        read_only: bool = read_only,
        flags: Vec<MountFlag> = flags,
    }
}

message! {
    PublishBlock {
        disk: Disk = disk or missing "disk",
        target @ Change [PublishBlock] = target_path,
        /// Make the disk refuse writes.
        read_only: bool = read_only,
    }
}

message! {
    Unpublish {
        volume: VolumeId = volume_id,
        target @ Change [PublishFilesystem, PublishBlock] = target_path,
    }
}

message! {
    Expand {
        volume: VolumeId = volume_id,
        /// A staging or target path of the volume. No file system is grown at a path for statistics
        /// alone.
        path @ Look [Stage, Unstage, PublishFilesystem, PublishBlock] = volume_path,
        /// The least size of the disk, in bytes.
        required_bytes: Option<NonZeroU64> = required_bytes,
        /// The greatest size of the disk, in bytes.
        limit_bytes: Option<NonZeroU64> = limit_bytes,
    }
}

message! {
    Stats {
        volume: VolumeId = volume_id,
        path @ Look [Stage, Unstage, PublishFilesystem, PublishBlock, Stats] = volume_path,
    }
}

message! {
    NvmeStatistics {
        volume: VolumeId = volume_id,
    }
}

message! {
    Held {
        volume: VolumeId = volume_id,
        /// The attachment for which a promise counts; `None`: any.
        attached_at: Option<AttachedAt> = attached_at,
        /// Chosen by the caller: a request joins none with another number.
        question: u64 = question,
    }
}

message! {
    Promise {
        volume: VolumeId = volume_id,
        attached_at: AttachedAt = attached_at,
    }
}

same_on_wire! {
    FormatOption,
    Inspect,
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

impl Request {
    /// Decodes a wire message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let wire = pb::Request::decode(bytes).map_err(|_| Malformed::NotProtobuf)?;
        let operation = Operation::read(required(wire.operation, "operation")?)?;
        Ok(Self { id: wire.id, wait: Duration::from_millis(wire.wait_ms.into()), operation })
    }

    /// Encodes the wire message.
    pub fn encode(&self) -> Vec<u8> {
        let wire = pb::Request {
            id: self.id,
            wait_ms: u32::try_from(self.wait.as_millis()).unwrap_or(u32::MAX),
            operation: Some(self.operation.write()),
        };
        wire.encode_to_vec()
    }
}

message! {
    /// One run of a tool, which the broker asks a runner for: the tool, and the values that the
    /// policy's table leaves open.
    Job {
        /// The number of the tool in the policy's table.
        tool: u8 = tool,
        fs: FsType = fs_type,
        /// Identifier of the file system, when the tool makes one.
        uuid: [u8; 16] = uuid,
        /// Options of the file system, when the tool makes one. Not checked.
        format: Vec<FormatOption> = format,
        /// The time that the tool writes into the file system, in seconds since 1970.
        time: u64 = time,
        /// Longest run time, in seconds, where the policy would allow more.
        deadline: u64 = deadline_seconds,
    }
}

values! {
    u8, u32:
        |wire| Self::try_from(wire).map_err(|_| Malformed::Invalid { field: "tool" })?,
        |value| (*value).into();
    [u8; 16], Vec<u8>:
        |wire| wire.try_into().map_err(|_| Malformed::Invalid { field: "uuid" })?,
        |value| value.to_vec();
}

impl Job {
    /// Decodes a wire message. The runner does not trust the broker.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::read(pb::Job::decode(bytes).map_err(|_| Malformed::NotProtobuf)?)
    }

    /// Encodes the wire message.
    pub fn encode(&self) -> Vec<u8> {
        self.write().encode_to_vec()
    }
}
