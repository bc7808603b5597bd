//! The node-agent's requests to the mount-helper: the table of all requests, and the message of
//! each.

use std::num::NonZeroU64;
use std::time::Duration;

use prost::Message as _;

use crate::codec::{Wire, message, one_of, same_on_wire};
use crate::malformed::required;
use crate::reply::{
    Done, Expanded, Inventory, LogPage, OperationKind, Outcome, Staged, Usage, Welcome,
};
use crate::{FsType, KeyStep, KubeletPath, Malformed, MountFlag, VolumeId, pb};

mod disk;
mod properties;

// Messages whose fields have no other type on the wire, and no bound.
pub use crate::pb::{FormatOption, Inspect};
pub use disk::{Disk, Origin, Source};
pub use properties::{RequestProperties, Slots, WorkerClass};

use properties::{CHANGE, LOOK, requests};

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
}

/// The message of a request.
pub trait HelperRequest: Into<Operation> {
    /// The answer, when nothing prevents the operation.
    type Answer: TryFrom<Outcome> + Into<Outcome>;
}

/// The versions of the protocol that the caller speaks, both inclusive and `oldest <= newest`.
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

impl Wire for Hello {
    type Pb = pb::Hello;

    fn read(wire: pb::Hello) -> Result<Self, Malformed> {
        if wire.oldest == 0 || wire.newest < wire.oldest {
            return Err(Malformed::Invalid { field: "hello" });
        }
        Ok(Self {
            oldest: wire.oldest,
            newest: wire.newest,
            key: KeyStep::from_wire(&wire.nonce, &wire.proof)?,
        })
    }

    fn write(&self) -> pb::Hello {
        let (nonce, proof) = self.key.to_wire();
        pb::Hello { oldest: self.oldest, newest: self.newest, nonce, proof }
    }
}

message! {
    /// Prepares the volume's file system at the staging path: formats a blank disk, checks, mounts
    /// and grows.
    Stage, checked by (|stage: &Self| MountFlag::check_list(&stage.flags)) {
        /// The disk.
        disk: Disk = disk or missing "disk",
        /// Where the file system is mounted.
        staging @ Change [Stage] = staging_path,
        /// The file system that is expected or made.
        fs: FsType = fs_type,
        /// Mount read-only; do not format or repair.
        read_only: bool = read_only,
        /// Mount flags, at most 32.
        flags: Vec<MountFlag> = flags,
        /// How to make the file system. Not checked.
        format: Vec<FormatOption> = format,
    }
}

message! {
    /// Undoes [`Stage`].
    Unstage {
        /// The volume.
        volume: VolumeId = volume_id,
        /// Where it was staged.
        staging @ Change [Stage, Unstage] = staging_path,
    }
}

message! {
    /// Shows the staged file system at the target path.
    PublishFilesystem, checked by (|publish: &Self| MountFlag::check_list(&publish.flags)) {
        /// The disk, whose mount must be at the staging path.
        disk: Disk = disk or missing "disk",
        /// Where it is staged.
        staging @ Look [Stage] = staging_path,
        /// The target path.
        target @ Change [PublishFilesystem] = target_path,
        /// Read-only at the target.
        read_only: bool = read_only,
        /// Mount flags, at most 32.
        flags: Vec<MountFlag> = flags,
    }
}

message! {
    /// Shows the disk itself at the target path.
    PublishBlock {
        /// The disk.
        disk: Disk = disk or missing "disk",
        /// The target path.
        target @ Change [PublishBlock] = target_path,
        /// Make the disk refuse writes.
        read_only: bool = read_only,
    }
}

message! {
    /// Undoes either publish.
    Unpublish {
        /// The volume.
        volume: VolumeId = volume_id,
        /// The target path.
        target @ Change [PublishFilesystem, PublishBlock] = target_path,
    }
}

message! {
    /// Grows the file system to the size of its disk.
    Expand {
        /// The volume.
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
    /// Requests space and inodes in use.
    Stats {
        /// The volume.
        volume: VolumeId = volume_id,
        /// A staging or target path of the volume.
        path @ Look [Stage, Unstage, PublishFilesystem, PublishBlock, Stats] = volume_path,
    }
}

message! {
    /// Requests log page 0xD0 of the volume's NVMe controller.
    NvmeStatistics {
        /// The volume.
        volume: VolumeId = volume_id,
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

impl TryFrom<pb::Request> for Request {
    type Error = Malformed;

    fn try_from(wire: pb::Request) -> Result<Self, Malformed> {
        let operation = Operation::read(required(wire.operation, "operation")?)?;
        Ok(Self { id: wire.id, wait: Duration::from_millis(wire.wait_ms.into()), operation })
    }
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
        let wire = pb::Request {
            id: self.id,
            wait_ms: u32::try_from(self.wait.as_millis()).unwrap_or(u32::MAX),
            operation: Some(self.operation.write()),
        };
        wire.encode_to_vec()
    }
}
