//! DescribeLockedSnapshots.

use aws_sdk_ec2::types::LockState;
use ebs_csi_wire::SnapshotId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::sdk::call::send;

/// The lock of a snapshot (EC2 API reference, `LockState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// Principals with the permission can lift the lock.
    Governance,
    /// Nobody can lift the lock, or nobody can once the cooling-off period ends.
    Compliance,
    /// The lock has expired.
    Expired,
}

impl Ec2 {
    /// Returns the lock of the snapshot, when it has or had one.
    ///
    /// # Errors
    /// Those of every call; [`Unreadable`](crate::Ec2ErrorKind::Unreadable) for
    /// an answer that lacks the lock's state.
    pub async fn snapshot_lock(
        &self,
        call: &Call,
        id: &SnapshotId,
    ) -> Result<Option<Locked>, Ec2Error> {
        let action = Action::DescribeLockedSnapshots;
        self.core
            .read(call, action, || async {
                let request =
                    self.core.client.describe_locked_snapshots().snapshot_ids(id.as_str());
                let output = send!(action, request);
                let mut snapshots = output.snapshots().iter();
                let Some(found) = snapshots.find(|found| found.snapshot_id() == Some(id.as_str()))
                else {
                    return Ok(None);
                };
                match found.lock_state() {
                    Some(LockState::Governance) => Ok(Some(Locked::Governance)),
                    Some(LockState::Compliance | LockState::ComplianceCooloff) => {
                        Ok(Some(Locked::Compliance))
                    }
                    Some(LockState::Expired) => Ok(Some(Locked::Expired)),
                    _ => Err(Ec2Error::unreadable(action, "the answer has no usable lockState")),
                }
            })
            .await
    }
}
