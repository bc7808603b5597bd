//! Snapshots: created once for each name, though EC2 has no client token for them; deleted; listed.

mod create;
pub(crate) mod group;
mod promise;

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, Ec2ErrorKind, ExpiringCache, ListPage, Snapshot, SnapshotState};
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{SnapshotId, VolumeId};
use tokio::time::Instant;

use crate::operation::operation_count::OperationCount;
use crate::operation::{Conflict, Operations};
use crate::request::CreateSnapshot;
use crate::request::listing::PageRequest;
use crate::request::tags::TagSettings;

/// How long one deletion may take, including the wait for its turn.
const DELETE_TIME: Duration = Duration::from_secs(120);
/// How long a caller is assumed to know a snapshot that was returned to it.
const RETURNED_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long reads may miss a snapshot that EC2 accepted, or may have accepted: EC2 has no client
/// token for snapshots, and no other proof that there is none.
const LOOKUP_GAP: Duration = Duration::from_secs(75);
/// How long a snapshot that EC2 showed is assumed to exist, unless this process deletes it: several
/// gaps may follow each other.
const SHOWN_TTL: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    ec2: Ec2,
    tags: Arc<TagSettings>,
    /// Until when a request of the previous process may still become visible.
    takeover_ends: Instant,
    /// Names whose create recently had no clear answer.
    unclear: ExpiringCache<()>,
    /// Names whose fast restores and lock are set.
    finished: ExpiringCache<()>,
    /// By name, the snapshots that were returned to callers.
    returned: ExpiringCache<SnapshotId>,
    /// By name, the snapshots that EC2 showed within [`SHOWN_TTL`].
    shown: ExpiringCache<SnapshotId>,
    creating: Operations<String, CreateSnapshot, Snapshot>,
    deleting: Operations<SnapshotId, (), ()>,
}

impl Snapshots {
    /// Creates the service with no operation under way. For `takeover` from now, when the process
    /// starts, a snapshot that is not found is looked for again: the previous process may have
    /// requested it and ended.
    ///
    /// A process that has been up for longer sends its first request after one look. It may be a
    /// standby whose sidecar has just become the leader, and the former leader may have asked EC2
    /// for the same snapshot a moment ago, so that the look does not show the snapshot yet. Then
    /// EC2 itself refuses the second request: EC2 accepts one snapshot of a volume in 15 s
    /// (`SnapshotCreationPerVolumeRateExceeded`), which is longer than its look-ups lag. The
    /// refusal is UNAVAILABLE, the caller tries again, and by then the look shows the snapshot. The
    /// process cannot see who was the leader before, so without that refusal every process would
    /// have to keep its first caller waiting.
    pub(crate) fn new(
        ec2: Ec2,
        tags: Arc<TagSettings>,
        takeover: Duration,
        operation_count: &OperationCount,
    ) -> Self {
        Self {
            ec2,
            tags,
            takeover_ends: Instant::now() + takeover,
            unclear: ExpiringCache::default(),
            finished: ExpiringCache::default(),
            returned: ExpiringCache::default(),
            shown: ExpiringCache::default(),
            creating: Operations::new(Conflict::Refuse, operation_count.clone()),
            deleting: Operations::new(Conflict::Refuse, operation_count.clone()),
        }
    }

    /// Takes the snapshot, or finds the one that an earlier request of this name took. The snapshot
    /// may still be incomplete.
    ///
    /// # Errors
    /// [`Condition::Incompatible`] when the name belongs to a snapshot of another volume; and EC2's
    /// errors.
    pub(crate) async fn create(
        &self,
        request: CreateSnapshot,
        timeout: Option<Duration>,
    ) -> Result<Snapshot, Failure> {
        let this = self.clone();
        let name = request.name.clone();
        let snapshot = self
            .creating
            .run(name.clone(), request.clone(), timeout, move |cancellation| {
                this.create_now(request, cancellation)
            })
            .await?;
        self.returned.put(&name, snapshot.id.clone(), RETURNED_TTL);
        Ok(snapshot)
    }

    /// Deletes the snapshot. Succeeds when the snapshot does not exist.
    ///
    /// # Errors
    /// [`Condition::InUse`] while an image uses it or a lock holds it.
    pub(crate) async fn delete(
        &self,
        id: SnapshotId,
        timeout: Option<Duration>,
    ) -> Result<(), Failure> {
        let (ec2, shown) = (self.ec2.clone(), self.shown.clone());
        self.deleting
            .run(id.clone(), (), timeout, move |_| async move {
                let call = Call::until(Instant::now() + DELETE_TIME);
                match ec2.delete_snapshot(&call, &id).await {
                    Ok(()) => {
                        shown.remove_if(|other| *other == id);
                        Ok(())
                    }
                    Err(error)
                        if matches!(
                            error.kind,
                            Ec2ErrorKind::SnapshotNotFound | Ec2ErrorKind::MalformedId
                        ) =>
                    {
                        Ok(())
                    }
                    Err(error) => Err(error.into()),
                }
            })
            .await
    }

    /// Returns the snapshot with this id, if there is one.
    ///
    /// # Errors
    /// EC2's errors. A snapshot that EC2 could not create is an error too, because it never becomes
    /// ready.
    pub(crate) async fn get(&self, id: &SnapshotId) -> Result<Option<Snapshot>, Failure> {
        let found = self.ec2.look_snapshot(&Call::default(), id).await.known()?;
        match found {
            Some(snapshot) if snapshot.state == SnapshotState::Error => Err(failed(&snapshot)),
            found => Ok(found),
        }
    }

    /// Returns a page of this account's snapshots, of one volume if given, and the token of the
    /// next page.
    ///
    /// # Errors
    /// [`Condition::BadStartingToken`]; and EC2's errors.
    pub(crate) async fn list(
        &self,
        volume: Option<VolumeId>,
        wanted: &PageRequest,
    ) -> Result<(Vec<Snapshot>, String), Failure> {
        wanted
            .read(async |max, token| {
                let page = ListPage { max, token, volume: volume.clone() };
                self.ec2.list_snapshots(&Call::default(), page).await
            })
            .await
    }
}

fn failed(snapshot: &Snapshot) -> Failure {
    Failure::new(
        Condition::Local,
        format!(
            "EC2 could not make snapshot {}: {}; delete it and take another",
            snapshot.id,
            snapshot.message.as_deref().unwrap_or("it gives no reason")
        ),
    )
}
