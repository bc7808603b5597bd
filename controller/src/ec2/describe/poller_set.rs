//! The pollers, one for each Describe API and kind of key.

use std::sync::Arc;

use tokio::time::Instant;

use super::by_id::{ById, Zones};
use super::poller::{Poller, Source, ZonePollers};
use super::{ByName, Described, DescribedById, Modifications};
use crate::ec2::action::Action;
use crate::ec2::model::instance::Instance;
use crate::ec2::model::instance_status::InstanceStatus;
use crate::ec2::model::snapshot::Snapshot;
use crate::ec2::model::volume::Volume;
use crate::ec2::model::volume_status::VolumeStatus;
use crate::ec2::pacing::duration_estimate::Changes;
use crate::ec2::pacing::poll_budget::Budget;
use crate::ec2::sdk::call::Core;

pub(in crate::ec2) struct PollerSet {
    pub(in crate::ec2) changes: Changes,
    pub(in crate::ec2) volumes: ZonePollers<DescribedById<Volume>>,
    pub(in crate::ec2) volumes_by_name: Poller<ByName<Volume>>,
    pub(in crate::ec2) modifications: ZonePollers<Modifications>,
    pub(in crate::ec2) instances: ZonePollers<DescribedById<Instance>>,
    pub(in crate::ec2) instance_statuses: ZonePollers<DescribedById<InstanceStatus>>,
    pub(in crate::ec2) snapshots: Poller<DescribedById<Snapshot>>,
    pub(in crate::ec2) snapshots_by_name: Poller<ByName<Snapshot>>,
    pub(in crate::ec2) statuses: ZonePollers<DescribedById<VolumeStatus>>,
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
    pub(in crate::ec2) fn new(core: &Arc<Core>) -> Self {
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
    pub(in crate::ec2) fn learn_zone(&self, volume: &Volume) {
        self.volume_zones.learn(&volume.id, &volume.zone);
    }
}
