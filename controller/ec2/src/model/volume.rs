//! Volumes and their attachments, as EC2 shows them.

use std::collections::BTreeMap;

use aws_sdk_ec2::types as sdk;
use ebs_csi_proto::GiB;
use ebs_csi_wire::{InstanceId, SnapshotId, VolumeId};

use super::sdk_field::{self, Incomplete};
use super::timestamp::Timestamp;

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The volume's id, which is the CSI volume handle.
    pub id: VolumeId,
    /// The state.
    pub state: VolumeState,
    /// The size.
    pub size: GiB,
    /// The type as EC2 writes it (`gp3`); empty when EC2 did not report it.
    pub kind: String,
    /// The name of the volume's zone; empty when EC2 did not report it.
    pub zone: String,
    /// The id of the volume's zone (`use1-az6`).
    pub zone_id: Option<String>,
    /// The ARN of the volume's Outpost.
    pub outpost_arn: Option<String>,
    /// Provisioned or baseline IOPS, for types that have them.
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB/s, for types that have it.
    pub throughput: Option<u32>,
    /// Whether the volume is encrypted.
    pub encrypted: bool,
    /// The ARN of the encryption key.
    pub kms_key_id: Option<String>,
    /// The snapshot that the volume was made from.
    pub snapshot: Option<SnapshotId>,
    /// The volume that this one was copied from.
    pub source_volume: Option<VolumeId>,
    /// Whether several instances may attach the volume.
    pub multi_attach: bool,
    /// When the volume was made.
    pub created: Option<Timestamp>,
    /// The attachments: usually none or one, up to 16 with multi-attach.
    pub attachments: Vec<Attachment>,
    /// The tags.
    pub tags: BTreeMap<String, String>,
}

impl Volume {
    /// Returns the attachment to this instance.
    pub fn attachment(&self, instance: &InstanceId) -> Option<&Attachment> {
        self.attachments.iter().find(|a| a.instance.as_ref() == Some(instance))
    }
}

sdk_field::words! {
    /// The states of a volume (EC2 API reference, `Volume`, `status`).
    pub enum VolumeState {
        /// Being made.
        Creating = "creating",
        /// Ready, attached to nothing.
        Available = "available",
        /// Attached, attaching or detaching.
        InUse = "in-use",
        /// Being deleted.
        Deleting = "deleting",
        /// Deleted.
        Deleted = "deleted",
        /// The creation failed.
        Error = "error",
    }
}

sdk_field::words! {
    /// The states of an attachment (EC2 API reference, `VolumeAttachment`, `status`).
    pub enum AttachmentState {
        /// Being attached.
        Attaching = "attaching",
        /// Attached.
        Attached = "attached",
        /// Being detached.
        Detaching = "detaching",
        /// Detached; shown only briefly, then the attachment is absent.
        Detached = "detached",
        /// A detach was requested and the guest still holds the device.
        Busy = "busy",
    }
}

/// One attachment of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The instance; `None` for attachments to other AWS resources.
    pub instance: Option<InstanceId>,
    /// The holder as EC2 writes it: the instance id or the ARN of another resource.
    pub holder: String,
    /// The state.
    pub state: AttachmentState,
    /// The device name that the attach request named (`/dev/xvdba`); empty when EC2 did not report
    /// it.
    pub device: String,
    /// When the attach was accepted.
    pub attached: Option<Timestamp>,
    /// The EBS card, on instances with several.
    pub card: Option<u32>,
}

/// The fields of `Volume` and of CreateVolume's answer have the same names, but the types have no
/// trait in common.
macro_rules! read_volume {
    ($answer:expr) => {{
        let answer = $answer;
        Ok(Volume {
            id: sdk_field::id(answer.volume_id(), "volumeId", VolumeId::parse)?,
            state: VolumeState::read(sdk_field::required(answer.state(), "status")?.as_str()),
            size: GiB(sdk_field::required(sdk_field::number(answer.size()), "size")?),
            kind: answer.volume_type().map(|t| t.as_str().to_owned()).unwrap_or_default(),
            zone: answer.availability_zone().unwrap_or_default().to_owned(),
            zone_id: sdk_field::text(answer.availability_zone_id()),
            outpost_arn: sdk_field::text(answer.outpost_arn()),
            iops: sdk_field::number(answer.iops()),
            throughput: sdk_field::number(answer.throughput()),
            encrypted: answer.encrypted().unwrap_or_default(),
            kms_key_id: sdk_field::text(answer.kms_key_id()),
            snapshot: answer.snapshot_id().and_then(|id| SnapshotId::parse(id).ok()),
            source_volume: answer.source_volume_id().and_then(|id| VolumeId::parse(id).ok()),
            multi_attach: answer.multi_attach_enabled().unwrap_or_default(),
            created: answer.create_time().map(Timestamp::from),
            attachments: answer
                .attachments()
                .iter()
                .map(Attachment::read)
                .collect::<Result<_, Incomplete>>()?,
            tags: sdk_field::tags(answer.tags()),
        })
    }};
}

impl Volume {
    pub(crate) fn read(answer: &sdk::Volume) -> Result<Self, Incomplete> {
        read_volume!(answer)
    }

    pub(crate) fn read_created(
        answer: &aws_sdk_ec2::operation::create_volume::CreateVolumeOutput,
    ) -> Result<Self, Incomplete> {
        read_volume!(answer)
    }
}

macro_rules! read_attachment {
    ($answer:expr) => {{
        let answer = $answer;
        let state = sdk_field::required(answer.state(), "attachment status")?;
        let instance = answer.instance_id().filter(|instance| !instance.is_empty());
        let holder = instance.or(answer.associated_resource());
        Ok(Attachment {
            instance: instance.and_then(|id| InstanceId::parse(id).ok()),
            holder: holder.unwrap_or_default().to_owned(),
            state: AttachmentState::read(state.as_str()),
            device: answer.device().unwrap_or_default().to_owned(),
            attached: answer.attach_time().map(Timestamp::from),
            card: sdk_field::number(answer.ebs_card_index()),
        })
    }};
}

impl Attachment {
    fn read(answer: &sdk::VolumeAttachment) -> Result<Self, Incomplete> {
        read_attachment!(answer)
    }

    pub(crate) fn read_attached(
        answer: &aws_sdk_ec2::operation::attach_volume::AttachVolumeOutput,
    ) -> Result<Self, Incomplete> {
        read_attachment!(answer)
    }

    pub(crate) fn read_detached(
        answer: &aws_sdk_ec2::operation::detach_volume::DetachVolumeOutput,
    ) -> Result<Self, Incomplete> {
        read_attachment!(answer)
    }
}
