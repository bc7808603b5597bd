//! Calls about snapshots.

use aws_sdk_ec2::types::{
    FastSnapshotRestoreStateCode as Restore, InstanceSpecification, LockMode, LockState,
    ResourceType,
};
use ebs_csi_wire::{InstanceId, SnapshotId, VolumeId};

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::describe::page::{filter, read_all};
use crate::error::code::Ec2ErrorKind;
use crate::error::{Ec2Error, Sent};
use crate::model::Tags;
use crate::model::sdk_field::{tag_specifications, to_i32};
use crate::model::snapshot::Snapshot;
use crate::model::timestamp::Timestamp;
use crate::sdk::call::{send, unreadable};

/// A snapshot to take. EC2 has no client token for it: a request that is sent twice makes two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateSnapshot {
    /// The volume to take the snapshot of.
    pub volume: VolumeId,
    /// A description in ASCII.
    pub description: String,
    /// The Outpost to keep the snapshot on.
    pub outpost_arn: Option<String>,
    /// The snapshot's tags.
    pub tags: Tags,
}

/// Snapshots to take of an instance's volumes at one moment. EC2 takes one of each volume that is
/// attached and not excluded, and has no client token: a request that is sent twice makes two sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateSnapshots {
    /// The instance, running or stopped.
    pub instance: InstanceId,
    /// Whether the root volume is left out.
    pub exclude_root: bool,
    /// The other volumes that are left out, at most [`CreateSnapshots::MAX_EXCLUDED`].
    pub excluded: Vec<VolumeId>,
    /// A description in ASCII.
    pub description: String,
    /// The tags of each snapshot.
    pub tags: Tags,
}

impl CreateSnapshots {
    /// The most volumes that one request can exclude (EC2 API reference, `InstanceSpecification`).
    pub const MAX_EXCLUDED: usize = 40;
}

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
    /// Takes a snapshot of the volume's content at the time when EC2 answers. Not idempotent: a
    /// request that is sent twice makes two snapshots.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look for the snapshot by name.
    pub async fn create_snapshot(
        &self,
        call: &Call,
        snapshot: &CreateSnapshot,
    ) -> Result<Snapshot, Ec2Error> {
        let action = Action::CreateSnapshot;
        self.core
            .send_change(call, action, || async {
                let tags = tag_specifications(ResourceType::Snapshot, &snapshot.tags);
                let request =
                    self.core.client.create_snapshot().volume_id(snapshot.volume.as_str());
                let request =
                    request.description(&snapshot.description).set_tag_specifications(tags);
                let output = send!(action, request.set_outpost_arn(snapshot.outpost_arn.clone()));
                Snapshot::read_created(&output).map_err(unreadable(action))
            })
            .await
    }

    /// Takes the snapshots. Not idempotent.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look for the snapshots by name.
    pub async fn create_snapshots(
        &self,
        call: &Call,
        snapshots: &CreateSnapshots,
    ) -> Result<Vec<Snapshot>, Ec2Error> {
        let action = Action::CreateSnapshots;
        let excluded: Vec<_> = snapshots.excluded.iter().map(ToString::to_string).collect();
        let instance = InstanceSpecification::builder()
            .instance_id(snapshots.instance.as_str())
            .exclude_boot_volume(snapshots.exclude_root)
            .set_exclude_data_volume_ids((!excluded.is_empty()).then_some(excluded))
            .build();
        self.core
            .send_change(call, action, || async {
                let tags = tag_specifications(ResourceType::Snapshot, &snapshots.tags);
                let request = self.core.client.create_snapshots();
                let request = request.instance_specification(instance.clone());
                let request = request.description(&snapshots.description);
                let output = send!(action, request.set_tag_specifications(tags));
                read_all(action, output.snapshots(), Snapshot::read_created_together)
            })
            .await
    }

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
        self.core
            .send_change(call, action, || async {
                let request = self.core.client.enable_fast_snapshot_restores();
                let request = request.source_snapshot_ids(snapshot.as_str());
                let output = send!(action, request.set_availability_zones(Some(zones.to_vec())));
                let unsuccessful = output.unsuccessful();
                if unsuccessful.is_empty() {
                    return Ok(());
                }
                let mut errors =
                    unsuccessful.iter().flat_map(|u| u.fast_snapshot_restore_state_errors());
                let Some(failed) = errors.next() else {
                    return Err(Ec2Error::unreadable(
                        action,
                        "EC2 lists a failure without its reason",
                    ));
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

    /// Returns the zones in which fast restores of the snapshot are enabled or being enabled.
    pub async fn fast_restore_zones(
        &self,
        call: &Call,
        id: &SnapshotId,
    ) -> Result<Vec<String>, Ec2Error> {
        let action = Action::DescribeFastSnapshotRestores;
        self.core
            .read(call, action, || async {
                let filter = filter("snapshot-id", [id.to_string()]);
                let request = self.core.client.describe_fast_snapshot_restores().filters(filter);
                let output = send!(action, request);
                let is_on = |state: Option<&Restore>| {
                    matches!(
                        state,
                        Some(Restore::Enabling | Restore::Optimizing | Restore::Enabled)
                    )
                };
                let restores = output.fast_snapshot_restores().iter();
                Ok(restores
                    .filter(|restore| is_on(restore.state()))
                    .filter_map(|restore| restore.availability_zone().map(str::to_owned))
                    .collect())
            })
            .await
    }

    /// Locks a snapshot.
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
