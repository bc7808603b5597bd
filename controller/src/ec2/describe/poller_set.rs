//! The pollers, one for each Describe API and kind of key.

use std::sync::Arc;

use tokio::time::Instant;

use super::by_id::{ById, Zones};
use super::poller::{Poller, ZonePollers};
use super::{
    InstanceStatuses, Instances, Modifications, Snapshots, SnapshotsByName, Statuses, Volumes,
    VolumesByName,
};
use crate::ec2::action::Action;
use crate::ec2::model::volume::Volume;
use crate::ec2::pacing::duration_estimate::Changes;
use crate::ec2::pacing::poll_budget::Budget;
use crate::ec2::sdk::call::Core;

pub(in crate::ec2) struct PollerSet {
    pub(in crate::ec2) changes: Changes,
    pub(in crate::ec2) volumes: ZonePollers<Volumes>,
    pub(in crate::ec2) volumes_by_name: Poller<VolumesByName>,
    pub(in crate::ec2) modifications: ZonePollers<Modifications>,
    pub(in crate::ec2) instances: ZonePollers<Instances>,
    pub(in crate::ec2) instance_statuses: ZonePollers<InstanceStatuses>,
    pub(in crate::ec2) snapshots: Poller<Snapshots>,
    pub(in crate::ec2) snapshots_by_name: Poller<SnapshotsByName>,
    pub(in crate::ec2) statuses: ZonePollers<Statuses>,
    volume_zones: Zones,
}

impl PollerSet {
    pub(in crate::ec2) fn new(core: &Arc<Core>) -> Self {
        let shared = || Arc::clone(core);
        let budget = |action: Action| {
            let rate = core.settings.rate(action);
            Arc::new(Budget::new(rate, Instant::now()))
        };
        let (volume_zones, instance_zones) = (Zones::default(), Zones::default());
        let of_volumes = || (volume_zones.clone(), ById::new(volume_zones.clone()));
        let of_instances = || (instance_zones.clone(), ById::new(instance_zones.clone()));
        // Both pollers of an action, by id and by name, share what EC2 grants the action.
        let volumes = budget(Action::DescribeVolumes);
        let snapshots = budget(Action::DescribeSnapshots);
        Self {
            changes: Changes::default(),
            volumes: {
                let (zones, by_id) = of_volumes();
                let source = Volumes(shared(), by_id);
                ZonePollers::new(source, zones, shared(), Arc::clone(&volumes))
            },
            volumes_by_name: Poller::new(VolumesByName(shared()), shared(), volumes),
            modifications: {
                let (zones, by_id) = of_volumes();
                let source = Modifications::new(shared(), by_id);
                let budget = budget(Action::DescribeVolumesModifications);
                ZonePollers::new(source, zones, shared(), budget)
            },
            instances: {
                let (zones, by_id) = of_instances();
                let source = Instances(shared(), by_id);
                ZonePollers::new(source, zones, shared(), budget(Action::DescribeInstances))
            },
            instance_statuses: {
                let (zones, by_id) = of_instances();
                let source = InstanceStatuses(shared(), by_id);
                let budget = budget(Action::DescribeInstanceStatus);
                ZonePollers::new(source, zones, shared(), budget)
            },
            snapshots: {
                let source = Snapshots(shared(), ById::default());
                Poller::new(source, shared(), Arc::clone(&snapshots))
            },
            snapshots_by_name: Poller::new(SnapshotsByName(shared()), shared(), snapshots),
            statuses: {
                let (zones, by_id) = of_volumes();
                let source = Statuses(shared(), by_id);
                ZonePollers::new(source, zones, shared(), budget(Action::DescribeVolumeStatus))
            },
            volume_zones,
        }
    }

    /// Learns the zone of a volume that EC2 showed in the answer to a change.
    pub(in crate::ec2) fn learn_zone(&self, volume: &Volume) {
        self.volume_zones.learn(&volume.id, &volume.zone);
    }
}
