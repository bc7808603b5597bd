//! AttachVolume.

use ebs_csi_wire::{DeviceName, InstanceId, VolumeId};

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::model::sdk_field::to_i32;
use crate::model::volume::Attachment;
use crate::sdk::call::{send, unreadable};

impl Ec2 {
    /// Attaches a volume. Returns as soon as EC2 accepts; the attachment is then `attaching`.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look at the volume.
    pub async fn attach_volume(
        &self,
        call: &Call,
        volume: &VolumeId,
        instance: &InstanceId,
        device: &DeviceName,
        card: Option<u32>,
    ) -> Result<Attachment, Ec2Error> {
        let action = Action::AttachVolume;
        self.core
            .send_change(call, action, || async {
                let request = self.core.client.attach_volume().volume_id(volume.as_str());
                let request = request.instance_id(instance.as_str()).device(device.as_str());
                let output = send!(action, request.set_ebs_card_index(card.map(to_i32)));
                Attachment::read_attached(&output).map_err(unreadable(action))
            })
            .await
    }
}
