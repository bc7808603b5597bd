//! Calls about existing volumes.

use std::time::Duration;

use aws_sdk_ec2::types::VolumeType;
use ebs_csi_proto::GiB;
use ebs_csi_wire::{DeviceName, InstanceId, VolumeId};
use tokio::time::Instant;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::model::modification::Modification;
use crate::model::sdk_field::to_i32;
use crate::model::volume::Attachment;
use crate::sdk::call::{send, unreadable};

/// The highest age of EC2's facts on which a detach is sent.
const MAX_FACTS_AGE: Duration = Duration::from_secs(2);

/// Whether a detach is forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// The detach waits until the guest has released the device.
    No,
    /// The detach does not wait, even if the guest still writes: data may be lost.
    Yes,
}

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
    /// Deletes a volume. Returns as soon as EC2 accepts.
    ///
    /// # Errors
    /// [`VolumeNotFound`](crate::Ec2ErrorKind::VolumeNotFound) when the volume does not exist, or
    /// not any more; [`VolumeInUse`](crate::Ec2ErrorKind::VolumeInUse) while it is attached; and
    /// the errors of every call.
    pub async fn delete_volume(&self, call: &Call, id: &VolumeId) -> Result<(), Ec2Error> {
        let action = Action::DeleteVolume;
        self.core
            .send_change(call, action, || async {
                send!(action, self.core.client.delete_volume().volume_id(id.as_str()));
                Ok(())
            })
            .await
    }

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

    /// Detaches a volume from one instance, on facts of which the oldest was read at `looked_at`.
    /// Returns as soon as EC2 accepts; the attachment is then `detaching`.
    ///
    /// # Errors
    /// [`Stale`](crate::Ec2ErrorKind::Stale) when the turn, or a retry, comes so late that an
    /// instance may have been stopped and started since: decide anew. Any other [`Ec2Error`]; after
    /// one that may have happened, look at the volume.
    pub async fn detach_volume(
        &self,
        call: &Call,
        volume: &VolumeId,
        instance: &InstanceId,
        force: Force,
        looked_at: Instant,
    ) -> Result<Attachment, Ec2Error> {
        let action = Action::DetachVolume;
        self.core
            .send_change(call, action, || async {
                if looked_at.elapsed() > MAX_FACTS_AGE {
                    return Err(Ec2Error::stale(action));
                }
                let request = self.core.client.detach_volume().volume_id(volume.as_str());
                let request = request.instance_id(instance.as_str());
                let output =
                    send!(action, request.set_force((force == Force::Yes).then_some(true)));
                Attachment::read_detached(&output).map_err(unreadable(action))
            })
            .await
    }

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
