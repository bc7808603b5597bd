//! Reads of what else EC2 keeps about a snapshot: fast restores and the lock.

use aws_sdk_ec2::types as sdk;
use ebs_csi_wire::SnapshotId;

use crate::action::Action;
use crate::call::Call;
use crate::client::Ec2;
use crate::describe::page::filter;
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
    /// Returns the zones in which fast restores of the snapshot are enabled or being enabled.
    ///
    /// # Errors
    /// Those of every call.
    pub async fn fast_restore_zones(
        &self,
        call: &Call,
        id: &SnapshotId,
    ) -> Result<Vec<String>, Ec2Error> {
        use sdk::FastSnapshotRestoreStateCode as State;
        let action = Action::DescribeFastSnapshotRestores;
        self.read(call, action, || async {
            let filter = filter("snapshot-id", [id.to_string()]);
            let request = self.core.client.describe_fast_snapshot_restores().filters(filter);
            let output = send!(action, request);
            let is_on = |state: Option<&State>| {
                matches!(state, Some(State::Enabling | State::Optimizing | State::Enabled))
            };
            let restores = output.fast_snapshot_restores().iter();
            Ok(restores
                .filter(|restore| is_on(restore.state()))
                .filter_map(|restore| restore.availability_zone().map(str::to_owned))
                .collect())
        })
        .await
    }

    /// Returns the lock of the snapshot, when it has or had one.
    ///
    /// # Errors
    /// Those of every call; [`Ec2ErrorKind::Unreadable`](crate::Ec2ErrorKind::Unreadable) for
    /// an answer that lacks the lock's state.
    pub async fn snapshot_lock(
        &self,
        call: &Call,
        id: &SnapshotId,
    ) -> Result<Option<Locked>, Ec2Error> {
        let action = Action::DescribeLockedSnapshots;
        self.read(call, action, || async {
            let request = self.core.client.describe_locked_snapshots().snapshot_ids(id.as_str());
            let output = send!(action, request);
            let mut snapshots = output.snapshots().iter();
            let Some(found) = snapshots.find(|found| found.snapshot_id() == Some(id.as_str()))
            else {
                return Ok(None);
            };
            match found.lock_state() {
                Some(sdk::LockState::Governance) => Ok(Some(Locked::Governance)),
                Some(sdk::LockState::Compliance | sdk::LockState::ComplianceCooloff) => {
                    Ok(Some(Locked::Compliance))
                }
                Some(sdk::LockState::Expired) => Ok(Some(Locked::Expired)),
                _ => Err(Ec2Error::unreadable(action, "the answer has no usable lockState")),
            }
        })
        .await
    }
}
