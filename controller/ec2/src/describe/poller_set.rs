//! The pollers, one for each Describe API and kind of key.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex};

use ebs_csi_proto::lock;
use tokio::time::Instant;

use super::by_id::{ById, Zones};
use super::poller::{Poller, Source, await_answers};
use super::{ByName, Described, DescribedById, Modifications};
use crate::calls::Action;
use crate::model::LookResult;
use crate::model::instance::Instance;
use crate::model::instance_status::InstanceStatus;
use crate::model::snapshot::Snapshot;
use crate::model::volume::Volume;
use crate::model::volume_status::VolumeStatus;
use crate::pacing::duration_estimate::Changes;
use crate::pacing::poll_budget::Budget;
use crate::sdk::call::Core;

/// One poller per zone, so that reads of a zone that fails or does not answer do not hold up
/// callers that ask about another zone.
///
/// EC2 fails a call that names ids of a zone with an outage (EC2 API reference, DescribeInstances).
/// Resources whose zone is not known yet have a poller of their own; its first answer shows the
/// zone.
pub(crate) struct ZonePollers<S: Source> {
    source: S,
    zones: Zones,
    core: Arc<Core>,
    budget: Arc<Budget>,
    pollers: Mutex<BTreeMap<Option<Arc<str>>, Poller<S>>>,
}

impl<S: Source + Clone> ZonePollers<S>
where
    S::Key: Display,
{
    pub(crate) fn new(source: S, zones: Zones, core: Arc<Core>, budget: Arc<Budget>) -> Self {
        Self { source, zones, core, budget, pollers: Mutex::default() }
    }

    fn poller_of_zone(&self, zone: Option<Arc<str>>) -> Poller<S> {
        let mut pollers = lock(&self.pollers);
        let create =
            || Poller::new(self.source.clone(), Arc::clone(&self.core), Arc::clone(&self.budget));
        pollers.entry(zone).or_insert_with(create).clone()
    }

    pub(crate) fn poller_of(&self, key: &S::Key) -> Poller<S> {
        self.poller_of_zone(self.zones.zone_of(key))
    }

    /// Returns one answer for each key, from calls that begin after this one. The keys are queued
    /// together, so that as many as EC2 takes share a call. Does not ask again: an answer that did
    /// not come is unknown.
    pub(crate) async fn look_all(
        &self,
        keys: &[S::Key],
        deadline: Instant,
    ) -> Vec<LookResult<S::Value>> {
        let mut by_zone: BTreeMap<_, Vec<(usize, S::Key)>> = BTreeMap::new();
        for (index, key) in keys.iter().enumerate() {
            let zone = by_zone.entry(self.zones.zone_of(key)).or_default();
            zone.push((index, key.clone()));
        }
        let mut pending = Vec::with_capacity(keys.len());
        for (zone, keys) in by_zone {
            let (indices, keys): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
            pending.extend(indices.into_iter().zip(self.poller_of_zone(zone).queue_looks(&keys)));
        }
        pending.sort_by_key(|(index, _)| *index);
        let pending = pending.into_iter().map(|(_, answer)| answer).collect();
        await_answers::<S>(pending, deadline).await
    }
}

pub(crate) struct PollerSet {
    pub(crate) changes: Changes,
    pub(crate) volumes: ZonePollers<DescribedById<Volume>>,
    pub(crate) volumes_by_name: Poller<ByName<Volume>>,
    pub(crate) modifications: ZonePollers<Modifications>,
    pub(crate) instances: ZonePollers<DescribedById<Instance>>,
    pub(crate) instance_statuses: ZonePollers<DescribedById<InstanceStatus>>,
    pub(crate) snapshots: Poller<DescribedById<Snapshot>>,
    pub(crate) snapshots_by_name: Poller<ByName<Snapshot>>,
    pub(crate) statuses: ZonePollers<DescribedById<VolumeStatus>>,
    volume_zones: Zones,
}

fn budget(core: &Core, action: Action) -> Arc<Budget> {
    Arc::new(Budget::new(core.settings.rate(action), Instant::now()))
}

fn pollers_by_id<V: Described>(
    core: &Arc<Core>,
    zones: &Zones,
    budget: Arc<Budget>,
) -> ZonePollers<DescribedById<V>> {
    let source = DescribedById::new(Arc::clone(core), ById::new(zones.clone()));
    ZonePollers::new(source, zones.clone(), Arc::clone(core), budget)
}

impl PollerSet {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let shared = || Arc::clone(core);
        let (volume_zones, instance_zones) = (Zones::default(), Zones::default());
        // Both pollers of an action, by id and by name, share what EC2 grants the action.
        let volumes = budget(core, Action::DescribeVolumes);
        let snapshots = budget(core, Action::DescribeSnapshots);
        let modifications = Modifications::new(shared(), ById::new(volume_zones.clone()));
        let snapshots_by_id = DescribedById::new(shared(), ById::default());
        Self {
            changes: Changes::default(),
            volumes: pollers_by_id(core, &volume_zones, Arc::clone(&volumes)),
            volumes_by_name: Poller::new(ByName::new(shared()), shared(), volumes),
            modifications: ZonePollers::new(
                modifications,
                volume_zones.clone(),
                shared(),
                budget(core, Modifications::ACTION),
            ),
            instances: pollers_by_id(core, &instance_zones, budget(core, Instance::ACTION)),
            instance_statuses: pollers_by_id(
                core,
                &instance_zones,
                budget(core, InstanceStatus::ACTION),
            ),
            snapshots: Poller::new(snapshots_by_id, shared(), Arc::clone(&snapshots)),
            snapshots_by_name: Poller::new(ByName::new(shared()), shared(), snapshots),
            statuses: pollers_by_id(core, &volume_zones, budget(core, VolumeStatus::ACTION)),
            volume_zones,
        }
    }

    /// Learns the zone of a volume that EC2 showed in the answer to a change.
    pub(crate) fn learn_zone(&self, volume: &Volume) {
        self.volume_zones.learn(&volume.id, &volume.zone);
    }
}
