//! What each poller asks EC2, and how the answer is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_ec2::types::Filter;
use ebs_csi_wire::{InstanceId, SnapshotId, VolumeId};
use tokio::time::Instant;

use super::action::Action;
use super::call::{Core, Tries};
use super::code::Ec2ErrorKind;
use super::error::{Ec2Error, Sent};
use super::instance::Instance;
use super::instance_status::InstanceStatus;
use super::modification::Modification;
use super::page::{SdkPage, all_pages, filter, literal, read_all};
use super::poller::Source;
use super::seen::Seen;
use super::snapshot::Snapshot;
use super::split;
use super::status::VolumeStatus;
use super::volume::Volume;
use crate::known_bug::KnownBug;

/// The tag by which a volume is found again, as the Go driver writes it.
pub(super) const VOLUME_NAME_TAG: &str = "CSIVolumeName";
/// The tag by which a snapshot is found again, as the Go driver writes it.
pub(super) const SNAPSHOT_NAME_TAG: &str = "CSIVolumeSnapshotName";

fn strings<T: ToString>(keys: &[T]) -> Vec<String> {
    keys.iter().map(ToString::to_string).collect()
}

/// Defines one paged, filtered Describe call that returns our own type.
macro_rules! paged {
    ($name:ident, $operation:ident, $list:ident, $action:ident, $most:literal, $read:path, $value:ty) => {
        async fn $name(
            core: &Core,
            filters: Vec<Filter>,
            deadline: Instant,
        ) -> Result<Vec<$value>, Ec2Error> {
            let action = Action::$action;
            all_pages(action, |token| {
                let filters = &filters;
                async move {
                    let token = &token;
                    core.call(action, deadline, Tries::One, || async move {
                        let output = core
                            .client
                            .$operation()
                            .set_filters(Some(filters.clone()))
                            .max_results($most)
                            .set_next_token(token.clone())
                            .send()
                            .await
                            .map_err(|e| Ec2Error::from_sdk(action, &e))?;
                        let entries = read_all(action, output.$list(), $read)?;
                        Ok((entries, output.next_token().map(str::to_owned)))
                    })
                    .await
                }
            })
            .await
        }
    };
}

paged!(
    describe_volumes,
    describe_volumes,
    volumes,
    DescribeVolumes,
    500,
    Volume::read,
    Volume
);
paged!(
    describe_modifications,
    describe_volumes_modifications,
    volumes_modifications,
    DescribeVolumesModifications,
    500,
    Modification::read,
    Modification
);

/// Volumes by id.
pub(super) struct Volumes(pub(super) Arc<Core>);

impl Source for Volumes {
    type Key = VolumeId;
    type Value = Volume;
    const ACTION: Action = Action::DescribeVolumes;

    async fn fetch(
        &self,
        keys: &[VolumeId],
        deadline: Instant,
    ) -> Result<BTreeMap<VolumeId, Seen<Volume>>, Ec2Error> {
        let filters = vec![filter("volume-id", strings(keys))];
        let found = describe_volumes(&self.0, filters, deadline).await?;
        if self.0.settings.known_bug == Some(KnownBug::BatchErrorToAll) && found.len() < keys.len()
        {
            return Err(Ec2Error {
                kind: Ec2ErrorKind::VolumeNotFound,
                action: Self::ACTION,
                code: None,
                message: "a volume of the call does not exist".to_owned(),
                request_id: None,
                sent: Sent::Answered,
            });
        }
        Ok(found
            .into_iter()
            .map(|volume| (volume.id.clone(), Seen::Present(volume)))
            .collect())
    }
}

/// Volumes by the name that the CO gave them. Several may bear one name.
pub(super) struct VolumesByName(pub(super) Arc<Core>);

impl Source for VolumesByName {
    type Key = String;
    type Value = Vec<Volume>;
    const ACTION: Action = Action::DescribeVolumes;

    async fn fetch(
        &self,
        keys: &[String],
        deadline: Instant,
    ) -> Result<BTreeMap<String, Seen<Vec<Volume>>>, Ec2Error> {
        let values = keys.iter().map(|name| literal(name));
        let filters = vec![filter(&format!("tag:{VOLUME_NAME_TAG}"), values)];
        let found = describe_volumes(&self.0, filters, deadline).await?;
        Ok(by_tag(found, |volume| volume.tags.get(VOLUME_NAME_TAG)))
    }
}

/// Modifications by volume; a volume that was never modified is absent.
pub(super) struct Modifications(pub(super) Arc<Core>);

impl Source for Modifications {
    type Key = VolumeId;
    type Value = Modification;
    const ACTION: Action = Action::DescribeVolumesModifications;

    async fn fetch(
        &self,
        keys: &[VolumeId],
        deadline: Instant,
    ) -> Result<BTreeMap<VolumeId, Seen<Modification>>, Ec2Error> {
        let filters = vec![filter("volume-id", strings(keys))];
        let mut latest: BTreeMap<VolumeId, Modification> = BTreeMap::new();
        for modification in describe_modifications(&self.0, filters, deadline).await? {
            match latest.get(&modification.volume) {
                Some(known) if known.started > modification.started => {}
                _ => {
                    latest.insert(modification.volume.clone(), modification);
                }
            }
        }
        Ok(latest
            .into_iter()
            .map(|(id, modification)| (id, Seen::Present(modification)))
            .collect())
    }
}

/// Instances, whatever reservation they belong to.
pub(super) async fn describe_instances(
    core: &Core,
    filters: Vec<Filter>,
    deadline: Instant,
    tries: Tries,
) -> Result<Vec<Instance>, Ec2Error> {
    let action = Action::DescribeInstances;
    all_pages(action, |token| {
        let filters = &filters;
        async move {
            let token = &token;
            core.call(action, deadline, tries, || async move {
                let output = core
                    .client
                    .describe_instances()
                    .set_filters(Some(filters.clone()))
                    .max_results(1000)
                    .set_next_token(token.clone())
                    .send()
                    .await
                    .map_err(|e| Ec2Error::from_sdk(action, &e))?;
                let instances = output.reservations().iter().flat_map(|r| r.instances());
                let entries = read_all(action, instances, Instance::read)?;
                Ok((entries, output.next_token().map(str::to_owned)))
            })
            .await
        }
    })
    .await
}

/// Instances by id.
pub(super) struct Instances(pub(super) Arc<Core>);

impl Source for Instances {
    type Key = InstanceId;
    type Value = Instance;
    const ACTION: Action = Action::DescribeInstances;

    async fn fetch(
        &self,
        keys: &[InstanceId],
        deadline: Instant,
    ) -> Result<BTreeMap<InstanceId, Seen<Instance>>, Ec2Error> {
        let filters = vec![filter("instance-id", strings(keys))];
        let found = describe_instances(&self.0, filters, deadline, Tries::One).await?;
        Ok(found
            .into_iter()
            .map(|instance| (instance.id.clone(), Seen::Present(instance)))
            .collect())
    }
}

/// One page of snapshots.
pub(super) async fn snapshot_page(
    core: &Core,
    request: aws_sdk_ec2::operation::describe_snapshots::builders::DescribeSnapshotsFluentBuilder,
    deadline: Instant,
    tries: Tries,
) -> Result<SdkPage<Snapshot>, Ec2Error> {
    let action = Action::DescribeSnapshots;
    core.call(action, deadline, tries, || {
        let request = request.clone();
        async move {
            let output = request
                .send()
                .await
                .map_err(|e| Ec2Error::from_sdk(action, &e))?;
            let entries = read_all(action, output.snapshots(), Snapshot::read)?;
            Ok((entries, output.next_token().map(str::to_owned)))
        }
    })
    .await
}

async fn own_snapshots(
    core: &Core,
    filters: Vec<Filter>,
    deadline: Instant,
) -> Result<Vec<Snapshot>, Ec2Error> {
    all_pages(Action::DescribeSnapshots, |token| {
        // Without an owner EC2 walks through every public snapshot of the Region.
        let request = core
            .client
            .describe_snapshots()
            .owner_ids("self")
            .set_filters(Some(filters.clone()))
            .max_results(1000)
            .set_next_token(token);
        snapshot_page(core, request, deadline, Tries::One)
    })
    .await
}

/// Snapshots by id: our own first, then, by id alone, those that another account shares.
pub(super) struct Snapshots(pub(super) Arc<Core>);

impl Source for Snapshots {
    type Key = SnapshotId;
    type Value = Snapshot;
    const ACTION: Action = Action::DescribeSnapshots;

    async fn fetch(
        &self,
        keys: &[SnapshotId],
        deadline: Instant,
    ) -> Result<BTreeMap<SnapshotId, Seen<Snapshot>>, Ec2Error> {
        let core = &self.0;
        let filters = vec![filter("snapshot-id", strings(keys))];
        let mut answers: BTreeMap<SnapshotId, Seen<Snapshot>> =
            own_snapshots(core, filters, deadline)
                .await?
                .into_iter()
                .map(|snapshot| (snapshot.id.clone(), Seen::Present(snapshot)))
                .collect();
        let missing: Vec<SnapshotId> = keys
            .iter()
            .filter(|key| !answers.contains_key(key))
            .cloned()
            .collect();
        if !missing.is_empty() {
            let shared = split::by_id(&missing, Ec2ErrorKind::SnapshotNotFound, |ids| async move {
                let request = core
                    .client
                    .describe_snapshots()
                    .set_snapshot_ids(Some(strings(&ids)));
                let (found, _) = snapshot_page(core, request, deadline, Tries::One).await?;
                Ok(found
                    .into_iter()
                    .map(|snapshot| (snapshot.id.clone(), snapshot))
                    .collect())
            })
            .await;
            answers.extend(shared);
        }
        Ok(answers)
    }
}

/// Our own snapshots by the name that the CO gave them. Several may bear one name.
pub(super) struct SnapshotsByName(pub(super) Arc<Core>);

impl Source for SnapshotsByName {
    type Key = String;
    type Value = Vec<Snapshot>;
    const ACTION: Action = Action::DescribeSnapshots;

    async fn fetch(
        &self,
        keys: &[String],
        deadline: Instant,
    ) -> Result<BTreeMap<String, Seen<Vec<Snapshot>>>, Ec2Error> {
        let values = keys.iter().map(|name| literal(name));
        let filters = vec![filter(&format!("tag:{SNAPSHOT_NAME_TAG}"), values)];
        let found = own_snapshots(&self.0, filters, deadline).await?;
        Ok(by_tag(found, |snapshot| {
            snapshot.tags.get(SNAPSHOT_NAME_TAG)
        }))
    }
}

/// Volume status by volume. The call has no filter by id, and one unknown id fails it.
pub(super) struct Statuses(pub(super) Arc<Core>);

impl Source for Statuses {
    type Key = VolumeId;
    type Value = VolumeStatus;
    const ACTION: Action = Action::DescribeVolumeStatus;

    async fn fetch(
        &self,
        keys: &[VolumeId],
        deadline: Instant,
    ) -> Result<BTreeMap<VolumeId, Seen<VolumeStatus>>, Ec2Error> {
        let core = &self.0;
        let action = Self::ACTION;
        let answers = split::by_id(keys, Ec2ErrorKind::VolumeNotFound, |ids| async move {
            let ids = &ids;
            let found = core
                .call(action, deadline, Tries::One, || async move {
                    let output = core
                        .client
                        .describe_volume_status()
                        .set_volume_ids(Some(strings(ids)))
                        .send()
                        .await
                        .map_err(|e| Ec2Error::from_sdk(action, &e))?;
                    read_all(action, output.volume_statuses(), VolumeStatus::read)
                })
                .await?;
            Ok(found
                .into_iter()
                .map(|status| (status.volume.clone(), status))
                .collect())
        })
        .await;
        Ok(answers)
    }
}

/// EC2 takes at most so many instances in one DescribeInstanceStatus (EC2 API reference, `DescribeInstanceStatus`, `InstanceId.N`).
const MOST_STATUSES: usize = 100;

/// Status checks of instances that run. The call has no filter by id, and one unknown id fails it.
pub(super) struct InstanceStatuses(pub(super) Arc<Core>);

impl Source for InstanceStatuses {
    type Key = InstanceId;
    type Value = InstanceStatus;
    const ACTION: Action = Action::DescribeInstanceStatus;

    async fn fetch(
        &self,
        keys: &[InstanceId],
        deadline: Instant,
    ) -> Result<BTreeMap<InstanceId, Seen<InstanceStatus>>, Ec2Error> {
        let core = &self.0;
        let action = Self::ACTION;
        let mut answers = BTreeMap::new();
        for some in keys.chunks(MOST_STATUSES) {
            let answered = split::by_id(some, Ec2ErrorKind::InstanceNotFound, |ids| async move {
                let ids = &ids;
                let found = core
                    .call(action, deadline, Tries::One, || async move {
                        let output = core
                            .client
                            .describe_instance_status()
                            .set_instance_ids(Some(strings(ids)))
                            .send()
                            .await
                            .map_err(|e| Ec2Error::from_sdk(action, &e))?;
                        read_all(action, output.instance_statuses(), InstanceStatus::read)
                    })
                    .await?;
                let found = found.into_iter();
                Ok(found.map(|status| (status.id.clone(), status)).collect())
            })
            .await;
            answers.extend(answered);
        }
        Ok(answers)
    }
}

fn by_tag<T: Clone>(
    found: Vec<T>,
    tag: impl Fn(&T) -> Option<&String>,
) -> BTreeMap<String, Seen<Vec<T>>> {
    let mut named: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for entry in found {
        if let Some(name) = tag(&entry).cloned() {
            named.entry(name).or_default().push(entry);
        }
    }
    named
        .into_iter()
        .map(|(name, entries)| (name, Seen::Present(entries)))
        .collect()
}
