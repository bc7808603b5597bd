//! The driver's features, one at a time.

use ebs_csi_proto::safe_detach::FenceRequest;
use ebs_csi_proto::safe_detach::fence_request::Mode as Fence;
use ebs_csi_sandbox::CoError;
use ebs_csi_sandbox::co::{GIB, Source, Volume};

use super::{FENCEABLE, IamWorld, NODE, OTHER_TYPE, fence_of};

const KEY: &str = "arn:aws:kms:us-east-1:111122223333:key/k";
/// Parameters of a class.
type Parameters = &'static [(&'static str, &'static str)];

/// Returns the parameters of a StorageClass.
fn encryption_of(feature: Feature) -> Parameters {
    match feature {
        Feature::Encrypt | Feature::CloneEncrypted | Feature::RestoreEncrypted => {
            &[("encrypted", "true"), ("kmsKeyId", KEY)]
        }
        _ => &[],
    }
}

/// Returns the parameters of a VolumeSnapshotClass that asks for more than the snapshot: a lock or
/// fast restore.
fn promising(feature: Feature) -> Parameters {
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
    SnapshotTogether SnapshotTogetherMigrated DeleteSnapshot Restore PublishWhenFilled Clone CloneMigrated FastRestore
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
    async fn volume_for(&self, feature: Feature) -> Result<Volume, CoError> {
        match format!("{feature:?}").ends_with("Migrated") {
            true => Ok(self.migrated()),
            false => self.create(&[], Source::Blank).await,
        }
    }

    /// Prepares a feature under all policies and runs its last step under the planned policies.
    pub(crate) async fn run(&self, feature: Feature) -> Result<(), CoError> {
        use Feature::*;
        match feature {
            Create | Encrypt => {
                self.last_step();
                self.create(encryption_of(feature), Source::Blank).await.map(drop)
            }
            Publish | PublishToNewType | PublishMigrated | Delete | DeleteMigrated | Expand
            | ExpandMigrated | SetTag | Snapshot | SnapshotMigrated | Clone | CloneMigrated
            | CloneEncrypted | FastRestore | Lock => {
                let volume = self.volume_for(feature).await?;
                self.last_step();
                self.use_volume(feature, volume).await
            }
            Unpublish | UnpublishMigrated => {
                let volume = self.volume_for(feature).await?;
                self.co.attach(&volume, NODE).await?;
                self.last_step();
                self.co.detach(&volume.id, NODE).await
            }
            RemoveTag => {
                let volume = self.volume_for(feature).await?;
                self.modify(&volume, "tagSpecification_1", "team=red").await?;
                self.last_step();
                self.modify(&volume, "tagDeletion_1", "team").await
            }
            EndRatio => {
                let ratio = [("type", "gp3"), ("iopsPerGB", "3000")];
                let volume = self.create(&ratio, Source::Blank).await?;
                self.last_step();
                self.modify(&volume, "iops", "3000").await
            }
            SnapshotTogether | SnapshotTogetherMigrated => {
                let mut groups = Vec::new();
                for node in [NODE, OTHER_TYPE] {
                    let mut volumes = Vec::new();
                    for _ in 0..2 {
                        let volume = self.volume_for(feature).await?;
                        self.co.attach(&volume, node).await?;
                        volumes.push(volume.id);
                    }
                    groups.push(volumes);
                }
                self.last_step();
                for volumes in groups {
                    self.co.snapshot_together(&self.name("group"), &volumes).await?;
                }
                Ok(())
            }
            DeleteSnapshot => {
                let snapshot = self.snapshot_of(&[]).await?;
                self.last_step();
                self.co.delete_snapshot(&snapshot).await
            }
            Restore | RestoreEncrypted => {
                let snapshot = self.snapshot_of(encryption_of(feature)).await?;
                self.last_step();
                let source = Source::Snapshot(snapshot);
                self.create(encryption_of(feature), source).await.map(drop)
            }
            PublishWhenFilled => {
                let snapshot = self.snapshot_of(&[]).await?;
                let wait = [("blockAttachUntilInitialized", "true")];
                let volume = self.create(&wait, Source::Snapshot(snapshot)).await?;
                self.last_step();
                self.co.attach(&volume, NODE).await.map(drop)
            }
            // Another process than the one that took the snapshot finds it and checks whether it
            // has what its class asks for.
            FastRestoreTakenOver | LockTakenOver => {
                let volume = self.volume_for(feature).await?;
                let name = self.name("snapshot");
                let taken = self.snapshot_named(&name, &volume, promising(feature)).await?;
                self.restart().await;
                self.last_step();
                let found = self.snapshot_named(&name, &volume, promising(feature)).await?;
                assert_eq!(taken, found, "the same snapshot");
                Ok(())
            }
            // Dry runs, so that the instance remains for the next feature.
            FenceByStop | FenceByTermination | FenceOfTheImpaired => {
                let mode = match feature {
                    FenceByTermination => Fence::Terminate,
                    _ => Fence::Stop,
                };
                let only_impaired = feature == FenceOfTheImpaired;
                if only_impaired {
                    self.impair(FENCEABLE);
                }
                self.last_step();
                let fence = fence_of(FENCEABLE, mode);
                self.fence(FenceRequest { dry_run: true, only_impaired, ..fence }).await
            }
        }
    }

    /// Runs the last step of a feature that needs nothing but a volume.
    async fn use_volume(&self, feature: Feature, mut volume: Volume) -> Result<(), CoError> {
        use Feature::*;
        match feature {
            PublishToNewType => self.co.attach(&volume, OTHER_TYPE).await.map(drop),
            Publish | PublishMigrated => self.co.attach(&volume, NODE).await.map(drop),
            Delete | DeleteMigrated => self.co.delete(&volume.id).await,
            Expand | ExpandMigrated => self.co.expand(&mut volume, 2 * GIB).await.map(drop),
            SetTag => self.modify(&volume, "tagSpecification_1", "team=red").await,
            Snapshot | SnapshotMigrated => self.snapshot(&volume, &[]).await.map(drop),
            FastRestore | Lock => self.snapshot(&volume, promising(feature)).await.map(drop),
            _ => {
                let source = Source::Volume(volume.id);
                self.create(encryption_of(feature), source).await.map(drop)
            }
        }
    }
}
