//! DetachVolume.

use std::time::Duration;

use ebs_csi_wire::{InstanceId, VolumeId};
use tokio::time::Instant;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
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

impl Ec2 {
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
}
