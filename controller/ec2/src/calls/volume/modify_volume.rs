//! ModifyVolume.

use aws_sdk_ec2::types::VolumeType;
use ebs_csi_proto::GiB;
use ebs_csi_wire::VolumeId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::model::modification::Modification;
use crate::model::sdk_field::to_i32;
use crate::sdk::call::{send, unreadable};

/// A change of a volume; a field that is `None` stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModifyVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The new size, not below the present one.
    pub size: Option<GiB>,
    /// The new type.
    pub kind: Option<String>,
    /// The new IOPS.
    pub iops: Option<u32>,
    /// The new throughput in MiB/s.
    pub throughput: Option<u32>,
}

impl ModifyVolume {
    /// Returns a change that leaves everything as it is.
    pub fn nothing(volume: VolumeId) -> Self {
        Self { volume, size: None, kind: None, iops: None, throughput: None }
    }
}

impl Ec2 {
    /// Changes size, type or performance. EC2 counts each accepted call against the volume's daily
    /// limit, including a call that changes nothing.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look at the modification.
    pub async fn modify_volume(
        &self,
        call: &Call,
        change: &ModifyVolume,
    ) -> Result<Modification, Ec2Error> {
        let action = Action::ModifyVolume;
        self.core
            .send_change(call, action, || async {
                let request = self
                    .core
                    .client
                    .modify_volume()
                    .volume_id(change.volume.as_str())
                    .set_size(change.size.map(|size| to_i32(size.0)))
                    .set_volume_type(change.kind.as_deref().map(VolumeType::from))
                    .set_iops(change.iops.map(to_i32))
                    .set_throughput(change.throughput.map(to_i32));
                let output = send!(action, request);
                let modification = output.volume_modification().ok_or_else(|| {
                    Ec2Error::unreadable(action, "the answer has no volumeModification")
                })?;
                Modification::read(modification).map_err(unreadable(action))
            })
            .await
    }
}
