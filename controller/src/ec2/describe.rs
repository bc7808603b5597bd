//! The request of each poller to EC2, and the parsing of the answer.

mod by_id;
mod modifications;
pub(super) mod page;
mod poller;
pub(super) mod poller_set;
mod snapshots;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;
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
use super::model::snapshot::Snapshot;
use super::model::volume::Volume;
use super::model::volume_status::VolumeStatus;
use super::sdk::call::{Core, Tries, send};
use crate::ec2::known_bug::KnownBug;
use by_id::ById;
use page::{SdkPage, escape_wildcards, filter, read_all, read_pages};
use poller::{MAX_KEYS_PER_CALL, Source};

pub(super) use modifications::Modifications;
pub(super) use snapshots::SnapshotsByName;

/// The tag that holds the name of a volume, as the Go driver writes it.
pub(super) const VOLUME_NAME_TAG: &str = "CSIVolumeName";
/// The tag that holds the name of a snapshot, as the Go driver writes it.
pub(super) const SNAPSHOT_NAME_TAG: &str = "CSIVolumeSnapshotName";

/// The most instances that EC2 takes in one DescribeInstanceStatus (EC2 API reference,
/// `DescribeInstanceStatus`, `InstanceId.N`).
const MAX_STATUSES_PER_CALL: usize = 100;

fn to_strings<T: ToString>(keys: &[T]) -> Vec<String> {
    keys.iter().map(ToString::to_string).collect()
}

/// A value that EC2 describes by id.
pub(super) trait Described: Clone + Send + 'static {
    type Id: Ord + Clone + Display + Send + Sync + 'static;
    const ACTION: Action;
    /// The most ids of one call.
    const MAX_IDS: usize = MAX_KEYS_PER_CALL;

    fn id(&self) -> &Self::Id;
    /// Empty when the answer does not say.
    fn zone(&self) -> &str {
        ""
    }
    /// Describes by id alone, without filters and pages: EC2 refuses a page size together with ids,
    /// and answers for all ids at once.
    fn describe(
        core: &Core,
        ids: Vec<String>,
    ) -> impl Future<Output = Result<Vec<Self>, Ec2Error>> + Send;
}

macro_rules! described {
    ($(
        $value:ident by $id:ty: $field:ident $(in $zone:ident)?,
        $action:ident, $call:ident, $set_ids:ident, |$output:ident| $entries:expr
        $(, at most $max:expr)?;
    )*) => {$(
        impl Described for $value {
            type Id = $id;
            const ACTION: Action = Action::$action;
            $(const MAX_IDS: usize = $max;)?

            fn id(&self) -> &$id {
                &self.$field
            }

            $(fn zone(&self) -> &str {
                &self.$zone
            })?

            async fn describe(core: &Core, ids: Vec<String>) -> Result<Vec<Self>, Ec2Error> {
                let $output = send!(Self::ACTION, core.client.$call().$set_ids(Some(ids)));
                read_all(Self::ACTION, $entries, Self::read)
            }
        }
    )*};
}

described! {
    Volume by VolumeId: id in zone,
        DescribeVolumes, describe_volumes, set_volume_ids, |output| output.volumes();
    Instance by InstanceId: id in zone,
        DescribeInstances, describe_instances, set_instance_ids,
        |output| output.reservations().iter().flat_map(|r| r.instances());
    VolumeStatus by VolumeId: volume,
        DescribeVolumeStatus, describe_volume_status, set_volume_ids,
        |output| output.volume_statuses();
    // Only running instances have a status.
    InstanceStatus by InstanceId: id,
        DescribeInstanceStatus, describe_instance_status, set_instance_ids,
        |output| output.instance_statuses(), at most MAX_STATUSES_PER_CALL;
    // Those of this account, and those that another account shares with it.
    Snapshot by SnapshotId: id,
        DescribeSnapshots, describe_snapshots, set_snapshot_ids, |output| output.snapshots();
}

async fn describe_by_ids<V: Described>(
    core: &Core,
    by_id: &ById,
    keys: &[V::Id],
    deadline: Instant,
) -> BTreeMap<V::Id, LookResult<V>> {
    by_id
        .describe(keys, |ids| async move {
            let ids = to_strings(&ids);
            let describe = || V::describe(core, ids.clone());
            let found = core.call(V::ACTION, deadline, Tries::One, describe).await?;
            for value in &found {
                by_id.zones.learn(value.id(), value.zone());
            }
            let found = found.into_iter();
            Ok(found.map(|value| (value.id().clone(), value)).collect())
        })
        .await
}

/// The values that EC2 describes by id alone.
pub(super) struct DescribedById<V> {
    core: Arc<Core>,
    by_id: ById,
    value: PhantomData<fn() -> V>,
}

impl<V> DescribedById<V> {
    pub(super) fn new(core: Arc<Core>, by_id: ById) -> Self {
        Self { core, by_id, value: PhantomData }
    }
}

impl<V> Clone for DescribedById<V> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.core), self.by_id.clone())
    }
}

impl<V: Described> Source for DescribedById<V> {
    type Key = V::Id;
    type Value = V;
    const ACTION: Action = V::ACTION;

    async fn fetch(
        &self,
        keys: &[V::Id],
        deadline: Instant,
    ) -> Result<BTreeMap<V::Id, LookResult<V>>, Ec2Error> {
        let mut answers = BTreeMap::new();
        for keys in keys.chunks(V::MAX_IDS) {
            answers.extend(describe_by_ids(&self.core, &self.by_id, keys, deadline).await);
        }
        if self.core.settings.known_bug == Some(KnownBug::BatchErrorToAll)
            && V::ACTION == Action::DescribeVolumes
            && answers.values().any(|result| matches!(result, LookResult::Absent))
        {
            let text = "a volume of the call does not exist";
            let kind = Ec2ErrorKind::VolumeNotFound;
            return Err(Ec2Error::new(kind, V::ACTION, Sent::Answered, text));
        }
        Ok(answers)
    }
}

/// Reads every page of an answer; each page is a call of its own.
async fn describe_every_page<T, F>(
    core: &Core,
    action: Action,
    deadline: Instant,
    tries: Tries,
    send: impl Fn(Option<String>) -> F,
) -> Result<Vec<T>, Ec2Error>
where
    F: Future<Output = Result<SdkPage<T>, Ec2Error>>,
{
    let send = &send;
    read_pages(action, |token| async move {
        core.call(action, deadline, tries, || send(token.clone())).await
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
        let request = core.client.describe_volumes().max_results(500).set_next_token(token);
        let output = send!(action, request.set_filters(Some(filters.clone())));
        let entries = read_all(action, output.volumes(), Volume::read)?;
        Ok((entries, output.next_token().map(str::to_owned)))
    })
    .await
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
        let request = core.client.describe_instances().max_results(1000).set_next_token(token);
        let output = send!(action, request.set_filters(Some(filters.clone())));
        let instances = output.reservations().iter().flat_map(|r| r.instances());
        let entries = read_all(action, instances, Instance::read)?;
        Ok((entries, output.next_token().map(str::to_owned)))
    })
    .await
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
