//! LockSnapshot.

use aws_sdk_ec2::types::LockMode;
use ebs_csi_wire::SnapshotId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::model::sdk_field::to_i32;
use crate::model::timestamp::Timestamp;
use crate::sdk::call::send;

/// A lock on a snapshot (EC2 API reference, LockSnapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSnapshot {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// `governance` or `compliance`.
    pub mode: String,
    /// The duration in days; excludes `expires`.
    pub duration_days: Option<u32>,
    /// When the lock ends; excludes `duration_days`.
    pub expires: Option<Timestamp>,
    /// Hours during which a compliance lock can still be lifted.
    pub cool_off_hours: Option<u32>,
}

impl Ec2 {
    /// Locks a snapshot.
    ///
    /// # Errors
    /// Those of every call.
    pub async fn lock_snapshot(&self, call: &Call, lock: &LockSnapshot) -> Result<(), Ec2Error> {
        let action = Action::LockSnapshot;
        self.core
            .send_change(call, action, || async {
                let request = self
                    .core
                    .client
                    .lock_snapshot()
                    .snapshot_id(lock.snapshot.as_str())
                    .lock_mode(LockMode::from(lock.mode.as_str()))
                    .set_lock_duration(lock.duration_days.map(to_i32))
                    .set_expiration_date(lock.expires.map(Timestamp::to_sdk))
                    .set_cool_off_period(lock.cool_off_hours.map(to_i32));
                send!(action, request);
                Ok(())
            })
            .await
    }
}
