//! The pollers, one for each Describe API and kind of key.

use std::sync::Arc;

use tokio::time::Instant;

use super::by_id::{ById, Zones};
use super::poller::{Poller, Source, ZonePollers};
use super::{ByName, Described, DescribedById, Modifications};
use crate::calls::Action;
use crate::model::instance::Instance;
use crate::model::instance_status::InstanceStatus;
use crate::model::snapshot::Snapshot;
use crate::model::volume::Volume;
use crate::model::volume_status::VolumeStatus;
use crate::pacing::duration_estimate::Changes;
use crate::pacing::poll_budget::Budget;
use crate::sdk::call::Core;

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
