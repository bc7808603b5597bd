//! The latest modification of a volume.

use aws_sdk_ec2::types as sdk;
use ebs_csi_proto::GiB;
use ebs_csi_wire::VolumeId;

use super::sdk_field::{self, Incomplete};
use super::timestamp::Timestamp;

/// A modification (EC2 API reference, `VolumeModification`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modification {
    /// The volume.
    pub volume: VolumeId,
    /// How far the modification is.
    pub state: ModificationState,
    /// The volume before.
    pub original: Performance,
    /// The volume after.
    pub target: Performance,
    /// Percent; 0 when EC2 does not report it.
    pub progress: i64,
    /// The reason of a failure, or what else EC2 reports.
    pub message: Option<String>,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// Size and speed of a volume; `None` where EC2 does not report them (gp2 has no throughput).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Performance {
    /// Size.
    pub size: Option<GiB>,
    /// The type, as EC2 writes it.
    pub kind: Option<String>,
    /// IOPS.
    pub iops: Option<u32>,
    /// MiB/s.
    pub throughput: Option<u32>,
}

sdk_field::words! {
    /// The states of a modification.
    pub enum ModificationState {
        /// Accepted; the new size is not usable yet.
        Modifying = "modifying",
        /// The new size is usable; the performance is between old and new. The next modification
        /// must wait.
        Optimizing = "optimizing",
        /// Done.
        Completed = "completed",
        /// Failed; the volume is as it was.
        Failed = "failed",
    }
}

impl Modification {
    pub(crate) fn read(answer: &sdk::VolumeModification) -> Result<Self, Incomplete> {
        let kind = |kind: Option<&sdk::VolumeType>| kind.map(|t| t.as_str().to_owned());
        let state = sdk_field::required(answer.modification_state(), "modificationState")?;
        Ok(Self {
            volume: sdk_field::id(answer.volume_id(), "volumeId", VolumeId::parse)?,
            state: ModificationState::read(state.as_str()),
            original: Performance {
                size: sdk_field::number(answer.original_size()).map(GiB),
                kind: kind(answer.original_volume_type()),
                iops: sdk_field::number(answer.original_iops()),
                throughput: sdk_field::number(answer.original_throughput()),
            },
            target: Performance {
                size: sdk_field::number(answer.target_size()).map(GiB),
                kind: kind(answer.target_volume_type()),
                iops: sdk_field::number(answer.target_iops()),
                throughput: sdk_field::number(answer.target_throughput()),
            },
            progress: answer.progress().unwrap_or_default(),
            message: sdk_field::text(answer.status_message()),
            started: answer.start_time().map(Timestamp::from),
            ended: answer.end_time().map(Timestamp::from),
        })
    }
}
