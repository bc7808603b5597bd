//! DeleteSnapshot.

use ebs_csi_wire::SnapshotId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::sdk::call::send;

impl Ec2 {
    /// Deletes a snapshot.
    ///
    /// # Errors
    /// [`SnapshotNotFound`](crate::Ec2ErrorKind::SnapshotNotFound),
    /// [`SnapshotInUse`](crate::Ec2ErrorKind::SnapshotInUse),
    /// [`SnapshotLocked`](crate::Ec2ErrorKind::SnapshotLocked), and the errors of every call.
    pub async fn delete_snapshot(&self, call: &Call, id: &SnapshotId) -> Result<(), Ec2Error> {
        let action = Action::DeleteSnapshot;
        self.core
            .send_change(call, action, || async {
                send!(action, self.core.client.delete_snapshot().snapshot_id(id.as_str()));
                Ok(())
            })
            .await
    }
}
