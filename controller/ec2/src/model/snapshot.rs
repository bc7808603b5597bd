//! Snapshots, as EC2 shows them.

use std::collections::BTreeMap;

use aws_sdk_ec2::types as sdk;
use ebs_csi_proto::GiB;
use ebs_csi_wire::{SnapshotId, VolumeId};

use super::sdk_field::{self, Incomplete};
use super::timestamp::Timestamp;

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The snapshot's id, which is the CSI snapshot handle.
    pub id: SnapshotId,
    /// The state.
    pub state: SnapshotState,
    /// EC2's text about a failure.
    pub message: Option<String>,
    /// The volume that the snapshot was taken of; `None` for copied snapshots, whose answer names a
    /// volume that never existed.
    pub volume: Option<VolumeId>,
    /// The size of that volume, and the least size of a volume made from it.
    pub size: GiB,
    /// When the snapshot was started: the point in time of its content.
    pub started: Option<Timestamp>,
    /// Progress as EC2 writes it (`99%`); empty at first.
    pub progress: String,
    /// Whether the snapshot is encrypted.
    pub encrypted: bool,
    /// The ARN of the Outpost that the snapshot is on.
    pub outpost_arn: Option<String>,
    /// The snapshot's tags.
    pub tags: BTreeMap<String, String>,
}

sdk_field::words! {
    /// The states of a snapshot (EC2 API reference, `Snapshot`, `status`).
    pub enum SnapshotState {
        /// Being written; no volume can be restored from it yet.
        Pending = "pending",
        /// Ready.
        Completed = "completed",
        /// Failed permanently.
        Error = "error",
        /// In the Recycle Bin.
        Recoverable = "recoverable",
        /// Being restored from the archive.
        Recovering = "recovering",
    }
}

macro_rules! read_snapshot {
    ($answer:ident, $message:expr) => {{
        Ok(Snapshot {
            id: sdk_field::id($answer.snapshot_id(), "snapshotId", SnapshotId::parse)?,
            state: SnapshotState::read(sdk_field::required($answer.state(), "status")?.as_str()),
            message: sdk_field::text($message),
            volume: $answer.volume_id().and_then(|id| VolumeId::parse(id).ok()),
            size: GiB(sdk_field::required(sdk_field::number($answer.volume_size()), "volumeSize")?),
            started: $answer.start_time().map(Timestamp::from),
            progress: $answer.progress().unwrap_or_default().to_owned(),
            encrypted: $answer.encrypted().unwrap_or_default(),
            outpost_arn: sdk_field::text($answer.outpost_arn()),
            tags: sdk_field::tags($answer.tags()),
        })
    }};
}

impl Snapshot {
    pub(crate) fn read(answer: &sdk::Snapshot) -> Result<Self, Incomplete> {
        read_snapshot!(answer, answer.state_message())
    }

    pub(crate) fn read_created(
        answer: &aws_sdk_ec2::operation::create_snapshot::CreateSnapshotOutput,
    ) -> Result<Self, Incomplete> {
        read_snapshot!(answer, answer.state_message())
    }

    pub(crate) fn read_created_together(answer: &sdk::SnapshotInfo) -> Result<Self, Incomplete> {
        read_snapshot!(answer, None)
    }
}
