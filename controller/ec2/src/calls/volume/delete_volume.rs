//! DeleteVolume.

use ebs_csi_wire::VolumeId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::sdk::call::send;

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
}
