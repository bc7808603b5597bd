//! Taking a snapshot.
//!
//! EC2 makes a second one when a request reaches it twice, and finds new ones by tag only after a while. So a request is sent once for each
//! look-up, and after a lost answer it is looked for, for longer than look-ups lag, before it is sent again.

use std::time::Duration;

use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;

use super::Snapshots;
use crate::ec2::{self, Ec2, Ec2Error, Ec2ErrorKind, Snapshot, SnapshotState};
use crate::ec2_failure::{failure, failure_as};
use crate::operations::Mandate;
use crate::request::CreateSnapshot;

/// How long one creation may take, waiting for its turn included.
const CREATE_TIME: Duration = Duration::from_secs(180);
/// Look-ups by tag may lag so much behind creation.
const TAG_LAG: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A lost answer is remembered so long, should the caller come back before the look-up shows anything.
const DOUBT: Duration = Duration::from_secs(120);
/// Fast restores and locks that were set are not set again within so long.
const FINISHED: Duration = Duration::from_secs(24 * 3600);

impl Snapshots {
    pub(super) async fn make(
        self,
        request: CreateSnapshot,
        mandate: Mandate,
    ) -> Result<Snapshot, Failure> {
        let ec2 = self.ec2.by(Instant::now() + CREATE_TIME);
        let found = match self.doubtful.get(&request.name).is_some() {
            true => find_late(&ec2, &request).await?,
            false => find(&ec2, &request).await?,
        };
        if let Some(snapshot) = found {
            // A crash may have come between the snapshot and what the class asks for besides.
            if self.finished.get(&request.name).is_none() {
                self.finish(&ec2, &request, &snapshot).await?;
            }
            return Ok(snapshot);
        }
        check_zones(&ec2, &request).await?;
        let create = ec2::CreateSnapshot {
            volume: request.volume.clone(),
            description: format!(
                "Created by AWS EBS CSI driver for volume {}",
                request.volume
            ),
            outpost_arn: request.class.outpost.clone(),
            tags: self.tags.of_snapshot(&request.name, &request.class)?,
        };
        // The caller may have had its snapshot from another process by now: EC2 would make a second.
        mandate.check_wanted()?;
        let snapshot = match ec2.create_snapshot(&create).await {
            Ok(snapshot) => snapshot,
            Err(error) if error.may_have_happened() => {
                self.doubtful.put(&request.name, (), DOUBT);
                tracing::warn!(name = request.name, %error, "whether the snapshot was taken is looked for by its name");
                find_late(&ec2, &request)
                    .await?
                    .ok_or_else(|| failure_as(Condition::OperationPending, &error))?
            }
            Err(error) if error.kind == Ec2ErrorKind::VolumeNotFound => {
                return Err(Failure::not_found("source volume", &request.volume));
            }
            Err(error) => return Err(failure(&error)),
        };
        if let Err(why) = self.finish(&ec2, &request, &snapshot).await {
            return Err(self.undo(&ec2, &snapshot, why).await);
        }
        Ok(snapshot)
    }

    /// Fast restores and the lock of the class.
    async fn finish(
        &self,
        ec2: &Ec2,
        request: &CreateSnapshot,
        snapshot: &Snapshot,
    ) -> Result<(), Failure> {
        let class = &request.class;
        if class.fast_restore_zones.is_empty() && class.lock.is_none() {
            return Ok(());
        }
        let describe = |what: &str, error: &Ec2Error| {
            failure(error).context(format!("snapshot {}: {what}", snapshot.id))
        };
        if !class.fast_restore_zones.is_empty() {
            ec2.enable_fast_snapshot_restores(&snapshot.id, &class.fast_restore_zones)
                .await
                .map_err(|error| describe("fast restores are not enabled", &error))?;
        }
        if let Some(lock) = &class.lock {
            ec2.lock_snapshot(&ec2::LockSnapshot {
                snapshot: snapshot.id.clone(),
                mode: lock.mode.as_str().to_owned(),
                duration_days: lock.duration_days,
                expires: lock.expiration,
                cool_off_hours: lock.cool_off_hours,
            })
            .await
            .map_err(|error| describe("it is not locked", &error))?;
        }
        self.finished.put(&request.name, (), FINISHED);
        Ok(())
    }

    /// A snapshot without the lock that its class promises must not stay.
    async fn undo(&self, ec2: &Ec2, snapshot: &Snapshot, why: Failure) -> Failure {
        match ec2.delete_snapshot(&snapshot.id).await {
            Ok(()) => why,
            Err(error) if error.kind == Ec2ErrorKind::SnapshotNotFound => why,
            Err(error) => Failure::new(
                Condition::OperationPending,
                format!("{why}; deleting the snapshot failed too: {error}"),
            ),
        }
    }
}

/// The snapshot that bears the name, of several the oldest.
async fn find(ec2: &Ec2, request: &CreateSnapshot) -> Result<Option<Snapshot>, Failure> {
    let snapshots = ec2
        .snapshots_by_name(&request.name)
        .await
        .map_err(|error| {
            // Not knowing is not a reason to say that nothing was done.
            match error.may_have_happened() || error.is_transient() {
                true => failure_as(Condition::OperationPending, &error),
                false => failure(&error),
            }
        })?;
    judge(request, snapshots)
}

/// As [`find`], for longer than look-ups lag.
async fn find_late(ec2: &Ec2, request: &CreateSnapshot) -> Result<Option<Snapshot>, Failure> {
    let until = Instant::now() + TAG_LAG;
    loop {
        if let Some(snapshot) = find(ec2, request).await? {
            return Ok(Some(snapshot));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn judge(
    request: &CreateSnapshot,
    mut snapshots: Vec<Snapshot>,
) -> Result<Option<Snapshot>, Failure> {
    snapshots.retain(|snapshot| snapshot.state != SnapshotState::Error);
    snapshots.sort_by(|a, b| (a.started, &a.id).cmp(&(b.started, &b.id)));
    if snapshots.len() > 1 {
        let ids: Vec<_> = snapshots
            .iter()
            .map(|snapshot| snapshot.id.as_str())
            .collect();
        tracing::warn!(
            name = request.name,
            ids = ids.join(","),
            "several snapshots bear one name; the oldest is used, delete the others if nothing refers to them"
        );
    }
    let Some(snapshot) = snapshots.into_iter().next() else {
        return Ok(None);
    };
    if snapshot.volume.as_ref() != Some(&request.volume) {
        let of = snapshot
            .volume
            .as_ref()
            .map_or("another volume", |volume| volume.as_str());
        return Err(Failure::new(
            Condition::Incompatible,
            format!(
                "a snapshot named {} exists and is of {of}: {}",
                request.name, snapshot.id
            ),
        ));
    }
    Ok(Some(snapshot))
}

/// Zones that do not exist are an error before anything is made. That they cannot be listed is none: EC2 will say.
async fn check_zones(ec2: &Ec2, request: &CreateSnapshot) -> Result<(), Failure> {
    let wanted = &request.class.fast_restore_zones;
    if wanted.is_empty() {
        return Ok(());
    }
    let zones = match ec2.availability_zones().await {
        Ok(zones) => zones,
        Err(error) => {
            tracing::warn!(%error, "the zones of fastSnapshotRestoreAvailabilityZones are not checked");
            return Ok(());
        }
    };
    match wanted
        .iter()
        .find(|name| !zones.iter().any(|zone| zone.name == **name))
    {
        None => Ok(()),
        Some(unknown) => Err(Failure::invalid(
            "parameters.fastSnapshotRestoreAvailabilityZones",
            format!("{unknown:?} is not a zone of this account and Region"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ebs_csi_proto::GiB;
    use ebs_csi_wire::{SnapshotId, VolumeId};

    use super::*;
    use crate::ec2::Timestamp;

    fn snapshot(n: u8, volume: &str, state: SnapshotState) -> Snapshot {
        Snapshot {
            id: SnapshotId::parse(&format!("snap-{n:017x}")).unwrap(),
            state,
            message: None,
            volume: VolumeId::parse(volume).ok(),
            size: GiB(1),
            started: Some(Timestamp {
                seconds: i64::from(n),
                nanoseconds: 0,
            }),
            progress: String::new(),
            encrypted: false,
            outpost_arn: None,
            tags: BTreeMap::new(),
        }
    }

    #[test]
    fn the_oldest_of_a_name_is_kept_and_failed_ones_do_not_count() {
        const OURS: &str = "vol-0123456789abcdef0";
        const OTHER: &str = "vol-0123456789abcdef1";
        let request = CreateSnapshot {
            name: "s".to_owned(),
            volume: VolumeId::parse(OURS).unwrap(),
            class: Default::default(),
        };
        let kept = judge(
            &request,
            vec![
                snapshot(9, OURS, SnapshotState::Completed),
                snapshot(1, OURS, SnapshotState::Error),
                snapshot(5, OURS, SnapshotState::Pending),
            ],
        );
        assert_eq!(
            kept.unwrap().unwrap().id,
            snapshot(5, OURS, SnapshotState::Pending).id
        );
        assert_eq!(
            judge(&request, vec![snapshot(1, OURS, SnapshotState::Error)]),
            Ok(None)
        );
        let other = judge(&request, vec![snapshot(1, OTHER, SnapshotState::Completed)]);
        assert_eq!(other.unwrap_err().condition(), Condition::Incompatible);
    }
}
