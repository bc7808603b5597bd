//! CreateVolume.

use aws_sdk_ec2::types::{ResourceType, VolumeType};
use ebs_csi_proto::GiB;
use ebs_csi_wire::SnapshotId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::model::Tags;
use crate::model::sdk_field::{tag_specifications, to_i32};
use crate::model::volume::Volume;
use crate::sdk::call::{send, unreadable};

/// A volume to create. Idempotent by its token: the same token and parameters return the volume
/// that the first call created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateVolume {
    /// The client token: at most 64 ASCII characters.
    pub client_token: String,
    /// The size; EC2 raises it to the snapshot's.
    pub size: GiB,
    /// The volume type (`gp3`).
    pub kind: String,
    /// The zone by name. EC2 refuses a name and an id together.
    pub zone: Option<String>,
    /// The zone by id.
    pub zone_id: Option<String>,
    /// The Outpost to create the volume on.
    pub outpost_arn: Option<String>,
    /// Whether to encrypt the volume; `None` leaves that to the snapshot and to the account's
    /// default.
    pub encrypted: Option<bool>,
    /// The key to encrypt the volume with.
    pub kms_key_id: Option<String>,
    /// Provisioned IOPS.
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB/s.
    pub throughput: Option<u32>,
    /// The snapshot whose data the volume gets.
    pub snapshot: Option<SnapshotId>,
    /// The rate in MiB/s at which the volume is filled from the snapshot.
    pub initialization_rate: Option<u32>,
    /// Whether several instances may attach the volume.
    pub multi_attach: bool,
    /// The volume's tags.
    pub tags: Tags,
}

impl Ec2 {
    /// Creates a volume. Returns as soon as EC2 accepts; the volume is then `creating`.
    ///
    /// # Errors
    /// Any [`Ec2Error`]. A failed creation may also show later, as a volume in state `error` or
    /// none at all.
    pub async fn create_volume(
        &self,
        call: &Call,
        volume: &CreateVolume,
    ) -> Result<Volume, Ec2Error> {
        let action = Action::CreateVolume;
        let created = self.core.send_change(call, action, || async {
            let request = self
                .core
                .client
                .create_volume()
                .client_token(&volume.client_token)
                .size(to_i32(volume.size.0))
                .volume_type(VolumeType::from(volume.kind.as_str()))
                .set_availability_zone(volume.zone.clone())
                .set_availability_zone_id(volume.zone_id.clone())
                .set_outpost_arn(volume.outpost_arn.clone())
                .set_encrypted(volume.encrypted)
                .set_kms_key_id(volume.kms_key_id.clone())
                .set_iops(volume.iops.map(to_i32))
                .set_throughput(volume.throughput.map(to_i32))
                .set_snapshot_id(volume.snapshot.as_ref().map(ToString::to_string))
                .set_volume_initialization_rate(volume.initialization_rate.map(to_i32))
                .multi_attach_enabled(volume.multi_attach)
                .set_tag_specifications(tag_specifications(ResourceType::Volume, &volume.tags));
            let output = send!(action, request);
            Volume::read_created(&output).map_err(unreadable(action))
        });
        let created = created.await?;
        self.pollers.learn_zone(&created);
        Ok(created)
    }
}
