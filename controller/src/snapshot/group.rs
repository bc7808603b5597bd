//! Snapshots of several volumes that show them at one moment.
//!
//! EC2 takes them by one request and knows no group: the group is a name tag that its snapshots
//! share. There is no client token, so what is said in `create.rs` about one snapshot applies here.

mod create;
mod members;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, Ec2ErrorKind, ExpiringCache, LookResult, Snapshot, SnapshotState};
use ebs_csi_parameters::tag::SNAPSHOT_NAME;
use ebs_csi_proto::Failure;
use ebs_csi_wire::SnapshotId;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{DELETE_TIME, RETURNED_TTL, SHOWN_TTL};
use crate::operation::operation_count::OperationCount;
use crate::operation::{Conflict, Operations};
use crate::request::group::{CreateGroup, GroupId};
use crate::request::tags::TagSettings;
use members::Group;

/// How old the answer to a repeated request may be: sidecars repeat one until the group is ready,
/// csi-snapshotter 8.6 several times a second.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The most groups of one refresh: the values that EC2 takes in one filter.
const MAX_GROUPS_PER_REFRESH: usize = 200;

/// Snapshots, and when a look first showed each.
type Seen = BTreeMap<SnapshotId, (Instant, Snapshot)>;

/// What a request wants of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Intent {
    /// With [`CreateGroup::request`].
    Create(String),
    Delete(BTreeSet<SnapshotId>),
}

#[derive(Clone, Debug)]
pub(crate) struct Groups {
    ec2: Ec2,
    tags: Arc<TagSettings>,
    /// How long a request of another process may stay invisible.
    takeover: Duration,
    takeover_ends: Instant,
    /// By group, when this process last sent a request whose snapshots it has not returned.
    asked: ExpiringCache<Instant>,
    /// By group, its snapshots that a look showed within [`SHOWN_TTL`] of the one before: reads may
    /// hide each for a while.
    seen: ExpiringCache<Seen>,
    /// Snapshots that were deleted; looks may show them for a while.
    deleted: ExpiringCache<()>,
    /// By id, the groups that were returned to callers.
    returned: ExpiringCache<Group>,
    refreshed: Arc<Mutex<Option<Instant>>>,
    changing: Operations<GroupId, Intent, Vec<Snapshot>>,
}

impl Groups {
    /// Creates the service with no operation under way. `takeover` is as for
    /// [`Snapshots`](super::Snapshots::new).
    pub(crate) fn new(
        ec2: Ec2,
        tags: Arc<TagSettings>,
        takeover: Duration,
        operation_count: &OperationCount,
    ) -> Self {
        Self {
            ec2,
            tags,
            takeover,
            takeover_ends: Instant::now() + takeover,
            asked: ExpiringCache::default(),
            seen: ExpiringCache::default(),
            deleted: ExpiringCache::default(),
            returned: ExpiringCache::default(),
            refreshed: Arc::default(),
            changing: Operations::new(Conflict::Refuse, operation_count.clone()),
        }
    }

    /// Takes the snapshots, or finds those that an earlier request of this name took. They may
    /// still be incomplete.
    ///
    /// # Errors
    /// `Condition::Incompatible` when the name belongs to a group of other volumes or parameters;
    /// `Condition::NotPrepared` when no instance has all volumes; and EC2's errors. While a
    /// snapshot of the group may exist, no failure is final: after one, the sidecar would forget
    /// the group.
    pub(crate) async fn create(
        &self,
        request: CreateGroup,
        timeout: Option<Duration>,
    ) -> Result<Vec<Snapshot>, Failure> {
        let id = request.id.clone();
        if let Some(group) = self.returned.get(id.as_str()) {
            group.check_request(&request)?;
            if group.is_pending() {
                self.refresh().await;
            }
            return self.returned.get(id.as_str()).unwrap_or(group).usable();
        }
        let this = self.clone();
        let intent = Intent::Create(request.request.clone());
        let members = self
            .changing
            .run(id.clone(), intent, timeout, move |cancellation| {
                this.create_now(request, cancellation)
            })
            .await?;
        // Not part of the operation: its caller may have given up.
        let group = Group::of(members);
        self.returned.put(id.as_str(), group.clone(), RETURNED_TTL);
        self.asked.remove(id.as_str());
        Ok(group.members)
    }

    /// Returns the snapshots of the group.
    ///
    /// # Errors
    /// `Condition::NotFound`; `Condition::InvalidField` when `listed` is not empty and does not
    /// name exactly these snapshots; EC2's errors.
    pub(crate) async fn get(
        &self,
        id: &GroupId,
        listed: &BTreeSet<SnapshotId>,
    ) -> Result<Vec<Snapshot>, Failure> {
        let found = self.find_all(&Call::default(), id, listed).await?;
        if found.is_empty() {
            return Err(Failure::not_found("group of snapshots", id));
        }
        let group = Group::of(members::choose(found, listed));
        let all_shown = listed.is_empty() || *listed == group.ids();
        if !all_shown {
            return Err(mismatch(id, &group.ids()));
        }
        group.usable()
    }

    /// Deletes the snapshots of the group. Succeeds when there are none.
    ///
    /// # Errors
    /// `Condition::InvalidField` when `listed` is not empty and lacks a snapshot of the group, or
    /// names one of another; `Condition::InUse` while an image uses one or a lock holds one.
    pub(crate) async fn delete(
        &self,
        id: GroupId,
        listed: BTreeSet<SnapshotId>,
        timeout: Option<Duration>,
    ) -> Result<(), Failure> {
        let this = self.clone();
        let (key, intent) = (id.clone(), Intent::Delete(listed.clone()));
        let work = move |_| async move {
            let call = Call::until(Instant::now() + DELETE_TIME);
            let found = this.find_all(&call, &id, &listed).await?;
            members::check_listed(&found, &listed).map_err(|unlisted| mismatch(&id, &unlisted))?;
            this.returned.remove(id.as_str());
            // Reads may hide a snapshot for a while, and a deletion of none does no harm.
            let found = found.into_iter().map(|snapshot| snapshot.id);
            for snapshot in found.chain(listed).collect::<BTreeSet<_>>() {
                this.delete_snapshot(&call, &snapshot).await?;
            }
            Ok(Vec::new())
        };
        self.changing.run(key, intent, timeout, work).await.map(drop)
    }

    /// Forgets that the snapshot was returned: it is deleted by itself.
    pub(crate) fn forget(&self, id: &SnapshotId) {
        self.returned.remove_if(|group| group.ids().contains(id));
    }

    /// Returns all snapshots of the group, of which look-ups by tag may miss those that are listed.
    async fn find_all(
        &self,
        call: &Call,
        id: &GroupId,
        listed: &BTreeSet<SnapshotId>,
    ) -> Result<Vec<Snapshot>, Failure> {
        let mut found = self.find_named(call, id).await?;
        for missing in listed {
            let is_deleted = self.deleted.get(missing.as_str()).is_some();
            if is_deleted || found.iter().any(|snapshot| snapshot.id == *missing) {
                continue;
            }
            let look = self.ec2.look_snapshot(call, missing).await;
            let Some(snapshot) = look.known()? else { continue };
            if snapshot.tags.get(SNAPSHOT_NAME).map(String::as_str) != Some(id.as_str()) {
                return Err(mismatch(id, &found.iter().map(|member| member.id.clone()).collect()));
            }
            found.push(snapshot);
        }
        Ok(found)
    }

    async fn find_named(&self, call: &Call, id: &GroupId) -> Result<Vec<Snapshot>, Failure> {
        let mut found = self
            .ec2
            .snapshots_by_name(call, id.as_str())
            .await
            // An unknown state must not be reported as "nothing was done".
            .map_err(|error| error.pending())?;
        found.retain(|snapshot| self.deleted.get(snapshot.id.as_str()).is_none());
        Ok(found)
    }

    async fn delete_snapshot(&self, call: &Call, id: &SnapshotId) -> Result<(), Failure> {
        match self.ec2.delete_snapshot(call, id).await {
            Ok(()) => {}
            Err(error) if error.kind == Ec2ErrorKind::SnapshotNotFound => {}
            Err(error) => return Err(error.into()),
        }
        self.deleted.put(id.as_str(), (), SHOWN_TTL);
        Ok(())
    }

    /// Looks at all groups that are not ready yet, together, unless that was done a short while
    /// ago.
    async fn refresh(&self) {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
            return;
        }
        let mut pending = self.returned.entries();
        pending.retain(|(_, group)| group.is_pending());
        pending.sort_by_key(|(_, group)| group.looked);
        pending.truncate(MAX_GROUPS_PER_REFRESH);
        let names: Vec<_> = pending.iter().map(|(name, _)| name.clone()).collect();
        let call = Call::default();
        let looks = self.ec2.look_snapshots_by_names(&call, &names).await;
        let now = Instant::now();
        *refreshed = Some(now);
        for ((name, mut group), look) in pending.into_iter().zip(looks) {
            match look {
                LookResult::Unknown(error) => {
                    tracing::warn!(group = name, %error, "whether the snapshots are ready is not known");
                }
                shown => {
                    let shown = shown.present().map_or(&[][..], Vec::as_slice);
                    group.update(shown, now);
                    if let Err(why) = self.discard(&call, &group.surplus(shown)).await {
                        tracing::warn!(group = name, %why);
                    }
                }
            }
            // A deletion may have begun meanwhile.
            if self.returned.get(&name).is_some() {
                self.returned.put(&name, group, RETURNED_TTL);
            }
        }
    }
}

fn mismatch(id: &GroupId, members: &BTreeSet<SnapshotId>) -> Failure {
    let members: Vec<_> = members.iter().map(SnapshotId::as_str).collect();
    let members = if members.is_empty() { "none".to_owned() } else { members.join(", ") };
    Failure::invalid("snapshot_ids", format!("are not those of {id}, which has {members}"))
}

fn is_failed(snapshot: &Snapshot) -> bool {
    snapshot.state == SnapshotState::Error
}
