//! Changes of snapshots.

use aws_sdk_ec2::types as sdk;
use ebs_csi_wire::SnapshotId;

use super::{send, tag_specifications, to_i32, unreadable};
use crate::ec2::action::Action;
use crate::ec2::client::Ec2;
use crate::ec2::error::code::Ec2ErrorKind;
use crate::ec2::error::{Ec2Error, Sent};
use crate::ec2::model::call_input::{CreateSnapshot, LockSnapshot};
use crate::ec2::model::snapshot::Snapshot;
use crate::ec2::model::timestamp::Timestamp;

impl Ec2 {
    /// Takes a snapshot of the volume's content at the time when EC2 answers. Not idempotent: a
    /// request that is sent twice makes two snapshots.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look for the snapshot by name.
    pub async fn create_snapshot(&self, request: &CreateSnapshot) -> Result<Snapshot, Ec2Error> {
        let action = Action::CreateSnapshot;
        self.send_change(action, || async {
            let output = send!(
                action,
                self.core
                    .client
                    .create_snapshot()
                    .volume_id(request.volume.as_str())
                    .description(&request.description)
                    .set_outpost_arn(request.outpost_arn.clone())
                    .set_tag_specifications(tag_specifications(
                        sdk::ResourceType::Snapshot,
                        &request.tags
                    ))
            );
            Snapshot::read_created(&output).map_err(unreadable(action))
        })
        .await
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// [`Ec2ErrorKind::SnapshotNotFound`], [`Ec2ErrorKind::SnapshotInUse`],
    /// [`Ec2ErrorKind::SnapshotLocked`], and the errors of every call.
    pub async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), Ec2Error> {
        let action = Action::DeleteSnapshot;
        self.send_change(action, || async {
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
        snapshot: &SnapshotId,
        zones: &[String],
    ) -> Result<(), Ec2Error> {
        let action = Action::EnableFastSnapshotRestores;
        self.send_change(action, || async {
            let output = send!(
                action,
                self.core
                    .client
                    .enable_fast_snapshot_restores()
                    .source_snapshot_ids(snapshot.as_str())
                    .set_availability_zones(Some(zones.to_vec()))
            );
            let failed = output
                .unsuccessful()
                .iter()
                .flat_map(|item| item.fast_snapshot_restore_state_errors())
                .next();
            let Some(failed) = failed else {
                return if output.unsuccessful().is_empty() {
                    Ok(())
                } else {
                    Err(Ec2Error::unreadable(
                        action,
                        "EC2 lists a failure without its reason",
                        None,
                    ))
                };
            };
            let code = failed.error().and_then(|e| e.code()).unwrap_or_default();
            let why = failed.error().and_then(|e| e.message()).unwrap_or_default();
            let zone = failed.availability_zone().unwrap_or("?");
            Err(Ec2Error {
                kind: Ec2ErrorKind::of(code, why),
                action,
                code: (!code.is_empty()).then(|| code.to_owned()),
                message: format!("zone {zone}: {why}"),
                request_id: None,
                sent: Sent::Answered,
            })
        })
        .await
    }

    /// Locks a snapshot.
    ///
    /// # Errors
    /// Those of every call.
    pub async fn lock_snapshot(&self, request: &LockSnapshot) -> Result<(), Ec2Error> {
        let action = Action::LockSnapshot;
        self.send_change(action, || async {
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
