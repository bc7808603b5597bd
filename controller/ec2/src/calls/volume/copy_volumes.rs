//! CopyVolumes.

use aws_sdk_ec2::types::{ResourceType, VolumeType};
use ebs_csi_proto::GiB;
use ebs_csi_wire::VolumeId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::model::Tags;
use crate::model::sdk_field::{tag_specifications, to_i32};
use crate::model::volume::Volume;
use crate::sdk::call::{send, unreadable};

/// A copy of a volume, in the zone of its source. Idempotent by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyVolume {
    /// The client token: at most 64 ASCII characters.
    pub client_token: String,
    /// The volume to copy.
    pub source: VolumeId,
    /// The size, at least the source's.
    pub size: GiB,
    /// The volume type.
    pub kind: String,
    /// Whether to encrypt the copy; `None` leaves it as its source is.
    pub encrypted: Option<bool>,
    /// The key to encrypt the copy with.
    pub kms_key_id: Option<String>,
    /// Provisioned IOPS.
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB/s.
    pub throughput: Option<u32>,
    /// Whether several instances may attach the copy.
    pub multi_attach: bool,
    /// The copy's tags.
    pub tags: Tags,
}

impl Ec2 {
    /// Copies a volume within its zone.
    ///
    /// # Errors
    /// Those of [`Ec2::create_volume`].
    pub async fn copy_volumes(&self, call: &Call, copy: &CopyVolume) -> Result<Volume, Ec2Error> {
        let action = Action::CopyVolumes;
        let created = self.core.send_change(call, action, || async {
            let request = self
                .core
                .client
                .copy_volumes()
                .client_token(&copy.client_token)
                .source_volume_id(copy.source.as_str())
                .size(to_i32(copy.size.0))
                .volume_type(VolumeType::from(copy.kind.as_str()))
                .set_encrypted(copy.encrypted)
                .set_kms_key_id(copy.kms_key_id.clone())
                .set_iops(copy.iops.map(to_i32))
                .set_throughput(copy.throughput.map(to_i32))
                .multi_attach_enabled(copy.multi_attach)
                .set_tag_specifications(tag_specifications(ResourceType::Volume, &copy.tags));
            let output = send!(action, request);
            match output.volumes() {
                [copy] => Volume::read(copy).map_err(unreadable(action)),
                volumes => Err(Ec2Error::unreadable(
                    action,
                    format!("the answer holds {} volumes where one was asked for", volumes.len()),
                )),
            }
        });
        let created = created.await?;
        self.pollers.learn_zone(&created);
        Ok(created)
    }
}
