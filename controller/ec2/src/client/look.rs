//! Reads of EC2's state.

use aws_sdk_ec2::types::Filter;
use ebs_csi_wire::{InstanceId, SnapshotId, VolumeId};
use tokio::time::Instant;

use super::Ec2;
use crate::call::Call;
use crate::calls::Action;
use crate::describe::page::{escape_wildcards, filter};
use crate::describe::{Listed, describe_every_page};
use crate::error::Ec2Error;
use crate::model::instance::Instance;
use crate::model::instance_status::InstanceStatus;
use crate::model::modification::Modification;
use crate::model::snapshot::Snapshot;
use crate::model::volume::Volume;
use crate::model::volume_status::VolumeStatus;
use crate::model::{DatedLook, ListPage, LookResult, OwnTags, Page};
use crate::pacing::duration_estimate::WatchedChange;
use crate::pacing::lane::LaneLevel;
use crate::sdk::call::Tries;

impl Ec2 {
    /// Looks at the volume: one answer from a call that began after this one.
    pub async fn look_volume(&self, call: &Call, id: &VolumeId) -> LookResult<Volume> {
        self.look_volume_dated(call, id).await.result
    }

    /// Does what [`Ec2::look_volume`] does, and says when the call began that was answered.
    pub async fn look_volume_dated(&self, call: &Call, id: &VolumeId) -> DatedLook<Volume> {
        let volumes = &self.pollers.volumes;
        volumes.poller_of(id).look(id, call.answers_by, self.core.deadline_of(call)).await
    }

    /// Looks at the instance: one answer from a call that began after this one.
    pub async fn look_instance(&self, call: &Call, id: &InstanceId) -> LookResult<Instance> {
        self.look_instance_dated(call, id).await.result
    }

    /// Does what [`Ec2::look_instance`] does, and says when the call began that was answered.
    pub async fn look_instance_dated(&self, call: &Call, id: &InstanceId) -> DatedLook<Instance> {
        let instances = &self.pollers.instances;
        instances.poller_of(id).look(id, call.answers_by, self.core.deadline_of(call)).await
    }

    /// Looks at all volumes, in as few calls as EC2 allows. Returns the answers in the order of
    /// `ids`. Does not ask again where EC2 fails.
    pub async fn look_volumes(&self, call: &Call, ids: &[VolumeId]) -> Vec<LookResult<Volume>> {
        self.pollers.volumes.look_all(ids, self.core.deadline_of(call)).await
    }

    /// Does for instances what [`Ec2::look_volumes`] does for volumes.
    pub async fn look_instances(
        &self,
        call: &Call,
        ids: &[InstanceId],
    ) -> Vec<LookResult<Instance>> {
        self.pollers.instances.look_all(ids, self.core.deadline_of(call)).await
    }

    /// Looks at the status checks of the instance; absent when the instance does not run or does
    /// not exist.
    pub async fn look_instance_status(
        &self,
        call: &Call,
        id: &InstanceId,
    ) -> LookResult<InstanceStatus> {
        let statuses = &self.pollers.instance_statuses;
        statuses.poller_of(id).look(id, None, self.core.deadline_of(call)).await.result
    }

    /// Does for the status checks of instances what [`Ec2::look_volumes`] does for volumes.
    pub async fn look_instance_statuses(
        &self,
        call: &Call,
        ids: &[InstanceId],
    ) -> Vec<LookResult<InstanceStatus>> {
        let statuses = &self.pollers.instance_statuses;
        statuses.look_all(ids, self.core.deadline_of(call)).await
    }

    /// Looks at the latest modification of the volume; absent when the volume was never modified or
    /// does not exist.
    pub async fn look_modification(&self, call: &Call, id: &VolumeId) -> LookResult<Modification> {
        let modifications = &self.pollers.modifications;
        modifications.poller_of(id).look(id, None, self.core.deadline_of(call)).await.result
    }

    /// Looks at the snapshot: one of this account, or one that another account shares with it.
    pub async fn look_snapshot(&self, call: &Call, id: &SnapshotId) -> LookResult<Snapshot> {
        let snapshots = &self.pollers.snapshots;
        snapshots.look(id, None, self.core.deadline_of(call)).await.result
    }

    /// Looks at the status of the volume. EC2's own data may be minutes old.
    pub async fn look_volume_status(&self, call: &Call, id: &VolumeId) -> LookResult<VolumeStatus> {
        self.pollers.statuses.poller_of(id).look(id, None, self.core.deadline_of(call)).await.result
    }

    /// Passes each fresh answer about the volume to `evaluate` until `evaluate` returns an outcome;
    /// returns `None` when `deadline` comes first. `watched` is the change that was just requested;
    /// the times of the reads follow from how long such changes took before.
    pub async fn watch_volume<R>(
        &self,
        call: &Call,
        id: &VolumeId,
        watched: WatchedChange,
        deadline: Instant,
        evaluate: impl FnMut(&DatedLook<Volume>) -> Option<R>,
    ) -> Option<R> {
        let durations = self.pollers.changes.of(watched);
        let poller = self.pollers.volumes.poller_of(id);
        poller.watch(id, Some(durations), call.waited(), deadline, evaluate).await
    }

    /// Does for an instance what [`Ec2::watch_volume`] does for a volume.
    pub async fn watch_instance<R>(
        &self,
        call: &Call,
        id: &InstanceId,
        deadline: Instant,
        evaluate: impl FnMut(&DatedLook<Instance>) -> Option<R>,
    ) -> Option<R> {
        let poller = self.pollers.instances.poller_of(id);
        poller.watch(id, None, call.waited(), deadline, evaluate).await
    }

    /// Does for the volume's latest modification what [`Ec2::watch_volume`] does for a volume.
    pub async fn watch_modification<R>(
        &self,
        call: &Call,
        id: &VolumeId,
        deadline: Instant,
        evaluate: impl FnMut(&DatedLook<Modification>) -> Option<R>,
    ) -> Option<R> {
        let poller = self.pollers.modifications.poller_of(id);
        poller.watch(id, None, call.waited(), deadline, evaluate).await
    }

    /// Returns the volumes whose `CSIVolumeName` tag is exactly this. Look-ups by tag lag behind
    /// creation by seconds.
    ///
    /// # Errors
    /// When no complete answer came.
    pub async fn volumes_by_name(&self, call: &Call, name: &str) -> Result<Vec<Volume>, Ec2Error> {
        let volumes = &self.pollers.volumes_by_name;
        let found = volumes.look(&name.to_owned(), None, self.core.deadline_of(call)).await;
        Ok(found.result.known()?.unwrap_or_default())
    }

    /// Returns this account's snapshots whose `CSIVolumeSnapshotName` tag is exactly this. Look-ups
    /// by tag lag behind creation by seconds.
    ///
    /// # Errors
    /// When no complete answer came.
    pub async fn snapshots_by_name(
        &self,
        call: &Call,
        name: &str,
    ) -> Result<Vec<Snapshot>, Ec2Error> {
        let snapshots = &self.pollers.snapshots_by_name;
        let found = snapshots.look(&name.to_owned(), None, self.core.deadline_of(call)).await;
        Ok(found.result.known()?.unwrap_or_default())
    }

    /// Does what [`Ec2::snapshots_by_name`] does for several names, in as few calls as EC2 allows.
    /// Returns the answers in the order of `names`. Does not ask again where EC2 fails.
    pub async fn look_snapshots_by_names(
        &self,
        call: &Call,
        names: &[String],
    ) -> Vec<LookResult<Vec<Snapshot>>> {
        self.pollers.snapshots_by_name.look_all(names, self.core.deadline_of(call)).await
    }

    /// Returns one page of this account's snapshots, or of one volume's snapshots when the page
    /// names a volume.
    ///
    /// # Errors
    /// [`BadPageToken`](crate::Ec2ErrorKind::BadPageToken) for a token that EC2 does not know,
    /// and the errors of every call.
    pub async fn list_snapshots(
        &self,
        call: &Call,
        page: ListPage,
    ) -> Result<Page<Snapshot>, Ec2Error> {
        let volume = page.volume.map(|volume| filter("volume-id", [volume.to_string()]));
        self.list(call, volume.as_slice(), page.max, page.token).await
    }

    /// Returns one page of this account's volumes that have these tags.
    ///
    /// # Errors
    /// Those of [`Ec2::list_snapshots`].
    pub async fn list_volumes(
        &self,
        call: &Call,
        max: Option<u32>,
        token: Option<String>,
        tags: &OwnTags,
    ) -> Result<Page<Volume>, Ec2Error> {
        let (key, value) = &tags.owner;
        let filters = [
            filter("tag-key", [tags.key.to_owned()]),
            filter(&format!("tag:{key}"), [escape_wildcards(value)]),
        ];
        self.list(call, &filters, max, token).await
    }

    /// Returns one page of the volumes that EC2 reports as impaired or with a warning, whoever in
    /// this account owns them.
    ///
    /// # Errors
    /// Those of [`Ec2::list_snapshots`].
    pub async fn list_impaired_volumes(
        &self,
        call: &Call,
        max: Option<u32>,
        token: Option<String>,
    ) -> Result<Page<VolumeStatus>, Ec2Error> {
        let statuses = filter("volume-status.status", ["impaired", "warning"].map(str::to_owned));
        self.list(call, &[statuses], max, token).await
    }

    async fn list<V: Listed>(
        &self,
        call: &Call,
        filters: &[Filter],
        max: Option<u32>,
        token: Option<String>,
    ) -> Result<Page<V>, Ec2Error> {
        let max = page_size(max, V::MAX_PAGE);
        let send = || V::describe_page(&self.core, filters, max, token.clone());
        self.core.read(call, V::ACTION, send).await
    }

    /// Returns the zone of an Outpost, as any instance on it shows; `None` when no instance of this
    /// account is on it.
    pub async fn zone_of_outpost(
        &self,
        call: &Call,
        arn: &str,
    ) -> Result<Option<String>, Ec2Error> {
        let filters = [filter("outpost-arn", [escape_wildcards(arn)])];
        let (deadline, tries) = (self.core.deadline_of(call), Tries::Several);
        let instances: Vec<Instance> =
            describe_every_page(&self.core, &filters, deadline, tries).await?;
        let mut zones = instances.into_iter().map(|instance| instance.zone);
        Ok(zones.find(|zone| !zone.is_empty()))
    }

    /// Counts a look-up of a remembered value about EC2: `cache` names the kind of value, `hit`
    /// tells whether no call was needed.
    pub fn count_cache_lookup(&self, cache: &str, hit: bool) {
        self.core.observer.cache(cache, hit);
    }

    /// Returns how full each action's lane is.
    pub fn lane_levels(&self) -> Vec<(Action, LaneLevel)> {
        self.core.lane_levels()
    }
}

/// Returns the page size for a request: EC2 takes 5 or more, up to its own maximum.
fn page_size(requested: Option<u32>, max: i32) -> i32 {
    requested.filter(|n| *n > 0).map_or(max, |n| i32::try_from(n).unwrap_or(max).clamp(5, max))
}
