//! The driver's features, one at a time.

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::volume_content_source::{SnapshotSource, Type as Source, VolumeSource};
use ebs_csi_proto::safe_detach::FenceRequest;
use ebs_csi_proto::safe_detach::fence_request::Mode as Fence;
use tonic::Status;

use super::{FENCEABLE, IamWorld, NODE, OTHER_TYPE, fence_of, within};

const KEY: &str = "arn:aws:kms:us-east-1:111122223333:key/k";
const ENCRYPTED: [(&str, &str); 2] = [("encrypted", "true"), ("kmsKeyId", KEY)];

fn from(snapshot_id: String) -> Source {
    Source::Snapshot(SnapshotSource { snapshot_id })
}

/// Returns the parameters of a VolumeSnapshotClass that asks for more than the snapshot: a lock or
/// fast restore.
fn promising(feature: Feature) -> &'static [(&'static str, &'static str)] {
    match feature {
        Feature::Lock | Feature::LockTakenOver => {
            &[("lockMode", "governance"), ("lockDuration", "1")]
        }
        _ => &[("fastSnapshotRestoreAvailabilityZones", "us-east-1a")],
    }
}

/// The driver's features, each as one step after the preparations that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    Create,
    Publish,
    PublishToNewType,
    Unpublish,
    Delete,
    PublishMigrated,
    UnpublishMigrated,
    DeleteMigrated,
    Expand,
    ExpandMigrated,
    SetTag,
    RemoveTag,
    EndRatio,
    Snapshot,
    SnapshotMigrated,
    DeleteSnapshot,
    Restore,
    PublishWhenFilled,
    Clone,
    CloneMigrated,
    FastRestore,
    FastRestoreTakenOver,
    Lock,
    LockTakenOver,
    FenceByStop,
    FenceByTermination,
    FenceOfTheImpaired,
    Encrypt,
    RestoreEncrypted,
}

impl Feature {
    pub(crate) const ALL: [Self; 29] = [
        Self::Create,
        Self::Publish,
        Self::PublishToNewType,
        Self::Unpublish,
        Self::Delete,
        Self::PublishMigrated,
        Self::UnpublishMigrated,
        Self::DeleteMigrated,
        Self::Expand,
        Self::ExpandMigrated,
        Self::SetTag,
        Self::RemoveTag,
        Self::EndRatio,
        Self::Snapshot,
        Self::SnapshotMigrated,
        Self::DeleteSnapshot,
        Self::Restore,
        Self::PublishWhenFilled,
        Self::Clone,
        Self::CloneMigrated,
        Self::FastRestore,
        Self::FastRestoreTakenOver,
        Self::Lock,
        Self::LockTakenOver,
        Self::FenceByStop,
        Self::FenceByTermination,
        Self::FenceOfTheImpaired,
        Self::Encrypt,
        Self::RestoreEncrypted,
    ];

    /// Returns whether the cluster-scoped policy has no statement for the feature.
    pub(crate) fn beyond_cluster_scope(self) -> bool {
        let name = format!("{self:?}");
        name.ends_with("Migrated") || name.contains("Encrypt") || name.starts_with("Fence")
    }
}

/// Turns a request into one that only checks permissions.
fn dry(fence: FenceRequest) -> FenceRequest {
    FenceRequest { dry_run: true, ..fence }
}

impl IamWorld {
    /// Prepares a feature under all policies and runs its last step under the planned policies.
    pub(crate) async fn run(&self, feature: Feature) -> Result<(), Status> {
        let wanted = |parameters| self.wanted(parameters, None);
        match feature {
            Feature::Create => {
                self.last_step();
                self.create(wanted(&[])).await.map(drop)
            }
            Feature::Publish | Feature::PublishToNewType => {
                let id = self.create(wanted(&[])).await?;
                self.last_step();
                let node = if feature == Feature::Publish { NODE } else { OTHER_TYPE };
                self.publish(&id, node).await
            }
            Feature::Unpublish | Feature::UnpublishMigrated => {
                let id = match feature {
                    Feature::Unpublish => self.create(wanted(&[])).await?,
                    _ => self.migrated(),
                };
                self.publish(&id, NODE).await?;
                self.last_step();
                self.unpublish(&id).await
            }
            Feature::PublishMigrated => {
                self.last_step();
                self.publish(&self.migrated(), NODE).await
            }
            Feature::Delete => {
                let id = self.create(wanted(&[])).await?;
                self.last_step();
                self.delete(&id).await
            }
            Feature::DeleteMigrated => {
                self.last_step();
                self.delete(&self.migrated()).await
            }
            Feature::Expand => {
                let id = self.create(wanted(&[])).await?;
                self.last_step();
                self.expand(&id).await
            }
            Feature::ExpandMigrated => {
                self.last_step();
                self.expand(&self.migrated()).await
            }
            Feature::SetTag => {
                let id = self.create(wanted(&[])).await?;
                self.last_step();
                self.modify(&id, ("tagSpecification_1", "team=red")).await
            }
            Feature::RemoveTag => {
                let id = self.create(wanted(&[])).await?;
                self.modify(&id, ("tagSpecification_1", "team=red")).await?;
                self.last_step();
                self.modify(&id, ("tagDeletion_1", "team")).await
            }
            Feature::EndRatio => {
                let id = self.create(wanted(&[("type", "gp3"), ("iopsPerGB", "3000")])).await?;
                self.last_step();
                self.modify(&id, ("iops", "3000")).await
            }
            Feature::Snapshot => {
                let id = self.create(wanted(&[])).await?;
                self.last_step();
                self.snapshot(&id, &[]).await.map(drop)
            }
            Feature::SnapshotMigrated => {
                self.last_step();
                self.snapshot(&self.migrated(), &[]).await.map(drop)
            }
            Feature::DeleteSnapshot => {
                let snapshot = self.snapshot_of(&[]).await?;
                self.last_step();
                let request =
                    csi::DeleteSnapshotRequest { snapshot_id: snapshot, ..Default::default() };
                self.client.clone().delete_snapshot(within(request)).await.map(drop)
            }
            Feature::Restore => {
                let snapshot = self.snapshot_of(&[]).await?;
                self.last_step();
                self.create(self.wanted(&[], Some(from(snapshot)))).await.map(drop)
            }
            Feature::PublishWhenFilled => {
                let snapshot = self.snapshot_of(&[]).await?;
                let wait = [("blockAttachUntilInitialized", "true")];
                let request = self.wanted(&wait, Some(from(snapshot)));
                let answer = self.client.clone().create_volume(within(request)).await?;
                let volume = answer.into_inner().volume.expect("a volume");
                self.last_step();
                self.publish_with(&volume.volume_id, NODE, volume.volume_context).await
            }
            Feature::Clone => {
                let id = self.create(wanted(&[])).await?;
                self.last_step();
                let source = Source::Volume(VolumeSource { volume_id: id });
                self.create(self.wanted(&[], Some(source))).await.map(drop)
            }
            Feature::CloneMigrated => {
                let source = Source::Volume(VolumeSource { volume_id: self.migrated() });
                self.last_step();
                self.create(self.wanted(&[], Some(source))).await.map(drop)
            }
            Feature::FastRestore | Feature::Lock => {
                let id = self.create(wanted(&[])).await?;
                self.last_step();
                self.snapshot(&id, promising(feature)).await.map(drop)
            }
            // Another process than the one that took the snapshot finds it and checks whether it
            // has what its class asks for.
            Feature::FastRestoreTakenOver | Feature::LockTakenOver => {
                let id = self.create(wanted(&[])).await?;
                let name = self.name("snapshot");
                let taken = self.snapshot_named(&name, &id, promising(feature)).await?;
                self.restart().await;
                self.last_step();
                let found = self.snapshot_named(&name, &id, promising(feature)).await?;
                assert_eq!(taken, found, "the same snapshot");
                Ok(())
            }
            // Dry runs, so that the instance remains for the next feature.
            Feature::FenceByStop => {
                self.last_step();
                self.fence(dry(fence_of(FENCEABLE, Fence::Stop))).await
            }
            Feature::FenceByTermination => {
                self.last_step();
                self.fence(dry(fence_of(FENCEABLE, Fence::Terminate))).await
            }
            Feature::FenceOfTheImpaired => {
                self.impair(FENCEABLE);
                self.last_step();
                let fence =
                    FenceRequest { only_impaired: true, ..fence_of(FENCEABLE, Fence::Stop) };
                self.fence(dry(fence)).await
            }
            Feature::Encrypt => {
                self.last_step();
                self.create(wanted(&ENCRYPTED)).await.map(drop)
            }
            Feature::RestoreEncrypted => {
                let snapshot = self.snapshot_of(&ENCRYPTED).await?;
                self.last_step();
                self.create(self.wanted(&ENCRYPTED, Some(from(snapshot)))).await.map(drop)
            }
        }
    }
}
