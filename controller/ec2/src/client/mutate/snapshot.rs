//! Changes of snapshots.

use aws_sdk_ec2::types as sdk;
use ebs_csi_wire::SnapshotId;

use super::{tag_specifications, to_i32, unreadable};
use crate::action::Action;
use crate::call::Call;
use crate::client::Ec2;
use crate::error::code::Ec2ErrorKind;
use crate::error::{Ec2Error, Sent};
use crate::model::call_input::{CreateSnapshot, LockSnapshot};
use crate::model::snapshot::Snapshot;
use crate::model::timestamp::Timestamp;
use crate::sdk::call::send;

impl Ec2 {
    /// Takes a snapshot of the volume's content at the time when EC2 answers. Not idempotent: a
    /// request that is sent twice makes two snapshots.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look for the snapshot by name.
    pub async fn create_snapshot(
        &self,
        call: &Call,
        request: &CreateSnapshot,
    ) -> Result<Snapshot, Ec2Error> {
        let action = Action::CreateSnapshot;
        self.send_change(call, action, || async {
            let tags = tag_specifications(sdk::ResourceType::Snapshot, &request.tags);
            let call = self.core.client.create_snapshot().volume_id(request.volume.as_str());
            let call = call.description(&request.description).set_tag_specifications(tags);
            let output = send!(action, call.set_outpost_arn(request.outpost_arn.clone()));
            Snapshot::read_created(&output).map_err(unreadable(action))
        })
        .await
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// [`Ec2ErrorKind::SnapshotNotFound`], [`Ec2ErrorKind::SnapshotInUse`],
    /// [`Ec2ErrorKind::SnapshotLocked`], and the errors of every call.
    pub async fn delete_snapshot(&self, call: &Call, id: &SnapshotId) -> Result<(), Ec2Error> {
        let action = Action::DeleteSnapshot;
        self.send_change(call, action, || async {
            send!(action, self.core.client.delete_snapshot().snapshot_id(id.as_str()));
            Ok(())
        })
        .await
    }

    /// Enables fast restores of a snapshot in zones, which are given by name.
    ///
    /// # Errors
    /// EC2 answers with success and a list of failures; the first of them is the error here. Also
    /// the errors of every call.
    pub async fn enable_fast_snapshot_restores(
        &self,
        call: &Call,
        snapshot: &SnapshotId,
        zones: &[String],
    ) -> Result<(), Ec2Error> {
        let action = Action::EnableFastSnapshotRestores;
        self.send_change(call, action, || async {
            let call = self.core.client.enable_fast_snapshot_restores();
            let call = call.source_snapshot_ids(snapshot.as_str());
            let output = send!(action, call.set_availability_zones(Some(zones.to_vec())));
            let unsuccessful = output.unsuccessful();
            if unsuccessful.is_empty() {
                return Ok(());
            }
            let mut errors =
                unsuccessful.iter().flat_map(|u| u.fast_snapshot_restore_state_errors());
            let Some(failed) = errors.next() else {
                return Err(Ec2Error::unreadable(action, "EC2 lists a failure without its reason"));
            };
            let code = failed.error().and_then(|e| e.code()).unwrap_or_default();
            let why = failed.error().and_then(|e| e.message()).unwrap_or_default();
            let text = format!("zone {}: {why}", failed.availability_zone().unwrap_or("?"));
            let kind = Ec2ErrorKind::of(code, why);
            let error = Ec2Error::new(kind, action, Sent::Answered, text);
            Err(Ec2Error { code: (!code.is_empty()).then(|| code.to_owned()), ..error })
        })
        .await
    }

    /// Locks a snapshot.
    ///
    /// # Errors
    /// Those of every call.
    pub async fn lock_snapshot(&self, call: &Call, request: &LockSnapshot) -> Result<(), Ec2Error> {
        let action = Action::LockSnapshot;
        self.send_change(call, action, || async {
            send!(
                action,
                self.core
                    .client
                    .lock_snapshot()
                    .snapshot_id(request.snapshot.as_str())
                    .lock_mode(sdk::LockMode::from(request.mode.as_str()))
                    .set_lock_duration(request.duration_days.map(to_i32))
                    .set_expiration_date(request.expires.map(Timestamp::to_sdk))
                    .set_cool_off_period(request.cool_off_hours.map(to_i32))
            );
            Ok(())
        })
        .await
    }
}
