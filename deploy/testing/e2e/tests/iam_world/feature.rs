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

macro_rules! features {
    ($($feature:ident)*) => {
        /// The driver's features, each as one step after the preparations that it needs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Feature {
            $($feature,)*
        }

        impl Feature {
            pub(crate) const ALL: &[Self] = &[$(Self::$feature,)*];
        }
    };
}

features! {
    Create Publish PublishToNewType Unpublish Delete PublishMigrated UnpublishMigrated
    DeleteMigrated Expand ExpandMigrated SetTag RemoveTag EndRatio Snapshot SnapshotMigrated
    DeleteSnapshot Restore PublishWhenFilled Clone CloneMigrated FastRestore
    FastRestoreTakenOver Lock LockTakenOver FenceByStop FenceByTermination FenceOfTheImpaired
    Encrypt RestoreEncrypted CloneEncrypted
}

impl Feature {
    /// Returns whether the cluster-scoped policy has no statement for the feature.
    pub(crate) fn beyond_cluster_scope(self) -> bool {
        let name = format!("{self:?}");
        name.ends_with("Migrated") || name.contains("Encrypt") || name.starts_with("Fence")
    }
}

impl IamWorld {
    /// Creates the volume that a feature uses: by the driver, or as one that was migrated to it.
    async fn volume_for(&self, feature: Feature) -> Result<String, Status> {
        match format!("{feature:?}").ends_with("Migrated") {
            true => Ok(self.migrated()),
            false => self.create(self.wanted(&[], None)).await,
        }
    }

    /// Prepares a feature under all policies and runs its last step under the planned policies.
    pub(crate) async fn run(&self, feature: Feature) -> Result<(), Status> {
        match feature {
            Feature::Create => {
                self.last_step();
                self.create(self.wanted(&[], None)).await.map(drop)
            }
            Feature::Publish | Feature::PublishToNewType | Feature::PublishMigrated => {
                let id = self.volume_for(feature).await?;
                self.last_step();
                let node = if feature == Feature::PublishToNewType { OTHER_TYPE } else { NODE };
                self.publish(&id, node).await
            }
            Feature::Unpublish | Feature::UnpublishMigrated => {
                let id = self.volume_for(feature).await?;
                self.publish(&id, NODE).await?;
                self.last_step();
                self.unpublish(&id).await
            }
            Feature::Delete | Feature::DeleteMigrated => {
                let id = self.volume_for(feature).await?;
                self.last_step();
                self.delete(&id).await
            }
            Feature::Expand | Feature::ExpandMigrated => {
                let id = self.volume_for(feature).await?;
                self.last_step();
                self.expand(&id).await
            }
            Feature::SetTag => {
                let id = self.volume_for(feature).await?;
                self.last_step();
                self.modify(&id, ("tagSpecification_1", "team=red")).await
            }
            Feature::RemoveTag => {
                let id = self.volume_for(feature).await?;
                self.modify(&id, ("tagSpecification_1", "team=red")).await?;
                self.last_step();
                self.modify(&id, ("tagDeletion_1", "team")).await
            }
            Feature::EndRatio => {
                let ratio = [("type", "gp3"), ("iopsPerGB", "3000")];
                let id = self.create(self.wanted(&ratio, None)).await?;
                self.last_step();
                self.modify(&id, ("iops", "3000")).await
            }
            Feature::Snapshot | Feature::SnapshotMigrated => {
                let id = self.volume_for(feature).await?;
                self.last_step();
                self.snapshot(&id, &[]).await.map(drop)
            }
            Feature::DeleteSnapshot => {
                let snapshot_id = self.snapshot_of(&[]).await?;
                self.last_step();
                let request = csi::DeleteSnapshotRequest { snapshot_id, ..Default::default() };
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
            Feature::Clone | Feature::CloneMigrated => {
                let volume_id = self.volume_for(feature).await?;
                self.last_step();
                let source = Source::Volume(VolumeSource { volume_id });
                self.create(self.wanted(&[], Some(source))).await.map(drop)
            }
            Feature::FastRestore | Feature::Lock => {
                let id = self.volume_for(feature).await?;
                self.last_step();
                self.snapshot(&id, promising(feature)).await.map(drop)
            }
            // Another process than the one that took the snapshot finds it and checks whether it
            // has what its class asks for.
            Feature::FastRestoreTakenOver | Feature::LockTakenOver => {
                let id = self.volume_for(feature).await?;
                let name = self.name("snapshot");
                let taken = self.snapshot_named(&name, &id, promising(feature)).await?;
                self.restart().await;
                self.last_step();
                let found = self.snapshot_named(&name, &id, promising(feature)).await?;
                assert_eq!(taken, found, "the same snapshot");
                Ok(())
            }
            // Dry runs, so that the instance remains for the next feature.
            Feature::FenceByStop | Feature::FenceByTermination | Feature::FenceOfTheImpaired => {
                let mode = match feature {
                    Feature::FenceByTermination => Fence::Terminate,
                    _ => Fence::Stop,
                };
                let only_impaired = feature == Feature::FenceOfTheImpaired;
                if only_impaired {
                    self.impair(FENCEABLE);
                }
                self.last_step();
                let fence = fence_of(FENCEABLE, mode);
                self.fence(FenceRequest { dry_run: true, only_impaired, ..fence }).await
            }
            Feature::Encrypt => {
                self.last_step();
                self.create(self.wanted(&ENCRYPTED, None)).await.map(drop)
            }
            Feature::CloneEncrypted => {
                let volume_id = self.volume_for(feature).await?;
                self.last_step();
                let source = Source::Volume(VolumeSource { volume_id });
                self.create(self.wanted(&ENCRYPTED, Some(source))).await.map(drop)
            }
            Feature::RestoreEncrypted => {
                let snapshot = self.snapshot_of(&ENCRYPTED).await?;
                self.last_step();
                self.create(self.wanted(&ENCRYPTED, Some(from(snapshot)))).await.map(drop)
            }
        }
    }
}
