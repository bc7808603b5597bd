//! The request of each poller to EC2, and the parsing of the answer.

mod by_id;
mod modifications;
pub(super) mod page;
mod poller;
pub(super) mod poller_set;
mod snapshots;
mod statuses;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use aws_sdk_ec2::types::Filter;
use ebs_csi_wire::{InstanceId, SnapshotId, VolumeId};
use tokio::time::Instant;

use super::action::Action;
use super::error::code::Ec2ErrorKind;
use super::error::{Ec2Error, Sent};
use super::model::instance::Instance;
use super::model::instance_status::InstanceStatus;
use super::model::look_result::LookResult;
use super::model::modification::Modification;
use super::model::snapshot::Snapshot;
use super::model::volume::Volume;
use super::model::volume_status::VolumeStatus;
use super::sdk::call::{Core, Tries};
use crate::ec2::known_bug::KnownBug;
use by_id::ById;
use page::{SdkPage, escape_wildcards, filter, read_all, read_pages};
use poller::Source;

pub(super) use modifications::Modifications;
pub(super) use snapshots::{Snapshots, SnapshotsByName, snapshot_page};
pub(super) use statuses::{InstanceStatuses, Statuses};

/// The tag that holds the name of a volume, as the Go driver writes it.
pub(super) const VOLUME_NAME_TAG: &str = "CSIVolumeName";
/// The tag that holds the name of a snapshot, as the Go driver writes it.
pub(super) const SNAPSHOT_NAME_TAG: &str = "CSIVolumeSnapshotName";

fn to_strings<T: ToString>(keys: &[T]) -> Vec<String> {
    keys.iter().map(ToString::to_string).collect()
}

/// A value that EC2 shows under an id.
trait Identified {
    type Id;
    fn id(&self) -> &Self::Id;
    /// Empty when the answer does not say.
    fn zone(&self) -> &str {
        ""
    }
}

macro_rules! identified {
    ($($value:ty, $id:ty, $field:ident $(, $zone:ident)?;)*) => {
        $(impl Identified for $value {
            type Id = $id;
            fn id(&self) -> &$id {
                &self.$field
            }
            $(fn zone(&self) -> &str {
                &self.$zone
            })?
        })*
    };
}

identified! {
    Volume, VolumeId, id, zone;
    Instance, InstanceId, id, zone;
    Modification, VolumeId, volume;
    VolumeStatus, VolumeId, volume;
    InstanceStatus, InstanceId, id;
    Snapshot, SnapshotId, id;
}

/// Describes by id alone, without filters and pages: EC2 refuses a page size together with ids, and
/// answers for all ids at once.
async fn describe_by_ids<V, F>(
    (core, by_id): (&Core, &ById),
    action: Action,
    keys: &[V::Id],
    deadline: Instant,
    ask: impl Fn(Vec<String>) -> F,
) -> BTreeMap<V::Id, LookResult<V>>
where
    V: Identified + Clone,
    V::Id: Ord + Clone + Display,
    F: Future<Output = Result<Vec<V>, Ec2Error>>,
{
    let ask = &ask;
    by_id
        .describe(keys, |ids| async move {
            let ids = to_strings(&ids);
            let found = core.call(action, deadline, Tries::One, || ask(ids.clone())).await?;
            for value in &found {
                by_id.zones.learn(value.id(), value.zone());
            }
            let found = found.into_iter();
            Ok(found.map(|value| (value.id().clone(), value)).collect())
        })
        .await
}

/// Reads every page of an answer; each page is a call of its own.
async fn describe_every_page<T, F>(
    core: &Core,
    action: Action,
    deadline: Instant,
    tries: Tries,
    ask: impl Fn(Option<String>) -> F,
) -> Result<Vec<T>, Ec2Error>
where
    F: Future<Output = Result<SdkPage<T>, Ec2Error>>,
{
    let ask = &ask;
    read_pages(action, |token| async move {
        core.call(action, deadline, tries, || ask(token.clone())).await
    })
    .await
}

/// Reads volumes by filter, page by page. EC2 may cut a page before it applies the filters, so a
/// read may cost a call for every 500 volumes of the account. Use this only for questions without
/// an id.
async fn describe_volumes(
    core: &Core,
    filters: Vec<Filter>,
    deadline: Instant,
) -> Result<Vec<Volume>, Ec2Error> {
    let (action, filters) = (Action::DescribeVolumes, &filters);
    describe_every_page(core, action, deadline, Tries::One, |token| async move {
        let request = core.client.describe_volumes().max_results(500);
        let request = request.set_filters(Some(filters.clone()));
        let output = request.set_next_token(token).send().await;
        let output = output.map_err(|e| Ec2Error::from_sdk(action, &e))?;
        let entries = read_all(action, output.volumes(), Volume::read)?;
        Ok((entries, output.next_token().map(str::to_owned)))
    })
    .await
}

/// Volumes by id.
#[derive(Clone)]
pub(super) struct Volumes(pub(super) Arc<Core>, pub(super) ById);

impl Source for Volumes {
    type Key = VolumeId;
    type Value = Volume;
    const ACTION: Action = Action::DescribeVolumes;

    async fn fetch(
        &self,
        keys: &[VolumeId],
        deadline: Instant,
    ) -> Result<BTreeMap<VolumeId, LookResult<Volume>>, Ec2Error> {
        let Self(core, by_id) = self;
        let action = Self::ACTION;
        let ask = |ids| async move {
            let request = core.client.describe_volumes().set_volume_ids(Some(ids));
            let output = request.send().await;
            let output = output.map_err(|e| Ec2Error::from_sdk(action, &e))?;
            read_all(action, output.volumes(), Volume::read)
        };
        let answers = describe_by_ids((core, by_id), action, keys, deadline, ask).await;
        if core.settings.known_bug == Some(KnownBug::BatchErrorToAll)
            && answers.values().any(|result| matches!(result, LookResult::Absent))
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
        Ok(answers)
    }
}

/// Volumes by the name that the CO gave them. Several volumes may have the same name.
pub(super) struct VolumesByName(pub(super) Arc<Core>);

impl Source for VolumesByName {
    type Key = String;
    type Value = Vec<Volume>;
    const ACTION: Action = Action::DescribeVolumes;

    async fn fetch(
        &self,
        keys: &[String],
        deadline: Instant,
    ) -> Result<BTreeMap<String, LookResult<Vec<Volume>>>, Ec2Error> {
        let values = keys.iter().map(|name| escape_wildcards(name));
        let filters = vec![filter(&format!("tag:{VOLUME_NAME_TAG}"), values)];
        let found = describe_volumes(&self.0, filters, deadline).await?;
        Ok(group_by_tag(found, |volume| volume.tags.get(VOLUME_NAME_TAG)))
    }
}

/// Reads instances by filter, from all reservations.
pub(super) async fn describe_instances(
    core: &Core,
    filters: Vec<Filter>,
    deadline: Instant,
    tries: Tries,
) -> Result<Vec<Instance>, Ec2Error> {
    let (action, filters) = (Action::DescribeInstances, &filters);
    describe_every_page(core, action, deadline, tries, |token| async move {
        let request = core.client.describe_instances().max_results(1000);
        let request = request.set_filters(Some(filters.clone()));
        let output = request.set_next_token(token).send().await;
        let output = output.map_err(|e| Ec2Error::from_sdk(action, &e))?;
        let instances = output.reservations().iter().flat_map(|r| r.instances());
        let entries = read_all(action, instances, Instance::read)?;
        Ok((entries, output.next_token().map(str::to_owned)))
    })
    .await
}

/// Instances by id.
#[derive(Clone)]
pub(super) struct Instances(pub(super) Arc<Core>, pub(super) ById);

impl Source for Instances {
    type Key = InstanceId;
    type Value = Instance;
    const ACTION: Action = Action::DescribeInstances;

    async fn fetch(
        &self,
        keys: &[InstanceId],
        deadline: Instant,
    ) -> Result<BTreeMap<InstanceId, LookResult<Instance>>, Ec2Error> {
        let Self(core, by_id) = self;
        let action = Self::ACTION;
        let ask = |ids| async move {
            let request = core.client.describe_instances().set_instance_ids(Some(ids));
            let output = request.send().await;
            let output = output.map_err(|e| Ec2Error::from_sdk(action, &e))?;
            let instances = output.reservations().iter().flat_map(|r| r.instances());
            read_all(action, instances, Instance::read)
        };
        Ok(describe_by_ids((core, by_id), action, keys, deadline, ask).await)
    }
}

fn group_by_tag<T: Clone>(
    found: Vec<T>,
    tag: impl Fn(&T) -> Option<&String>,
) -> BTreeMap<String, LookResult<Vec<T>>> {
    let mut named: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for entry in found {
        if let Some(name) = tag(&entry).cloned() {
            named.entry(name).or_default().push(entry);
        }
    }
    named.into_iter().map(|(name, entries)| (name, LookResult::Present(entries))).collect()
}
