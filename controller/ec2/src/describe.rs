//! The requests of reads to EC2, and the parsing of the answers.

mod by_id;
mod modifications;
pub(super) mod page;
mod poller;
pub(super) mod poller_set;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use aws_sdk_ec2::types::Filter;
use ebs_csi_wire::{InstanceId, SnapshotId, VolumeId};
use tokio::time::Instant;

use super::calls::Action;
use super::error::Ec2Error;
use super::model::instance::Instance;
use super::model::instance_status::InstanceStatus;
use super::model::modification::Modification;
use super::model::snapshot::Snapshot;
use super::model::volume::Volume;
use super::model::volume_status::VolumeStatus;
use super::model::{LookResult, Page};
use super::sdk::call::{Core, Tries, send};
use by_id::ById;
use modifications::Modifications;
use page::{escape_wildcards, filter, read_all, read_pages};
use poller::{MAX_KEYS_PER_CALL, Source};

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

/// A value that EC2 also lists by filter, page by page.
///
/// EC2 may cut a page before it applies the filters, so that a list may cost a call for every
/// `MAX_PAGE` resources of the account. Use this only for questions without an id.
pub(super) trait Listed: Described {
    const MAX_PAGE: i32;

    fn describe_page(
        core: &Core,
        filters: &[Filter],
        max: i32,
        token: Option<String>,
    ) -> impl Future<Output = Result<Page<Self>, Ec2Error>> + Send;
}

macro_rules! described {
    ($(
        $value:ident by $id:ty: $field:ident $(in $zone:ident)?,
        $action:ident, $call:ident, $set_ids:ident, |$output:ident| $entries:expr
        $(, at most $max:expr)?
        $(, of each $choose:path)?
        $(, pages of $page:literal $(of $set_owner:ident $owner:literal)?)?;
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
                let found = read_all(Self::ACTION, $entries, Self::read);
                $(let found = found.map($choose);)?
                found
            }
        }

        $(impl Listed for $value {
            const MAX_PAGE: i32 = $page;

            async fn describe_page(
                core: &Core,
                filters: &[Filter],
                max: i32,
                token: Option<String>,
            ) -> Result<Page<Self>, Ec2Error> {
                let request = core.client.$call()$(.$set_owner($owner))?.max_results(max);
                let filters = (!filters.is_empty()).then(|| filters.to_vec());
                let request = request.set_filters(filters).set_next_token(token);
                let $output = send!(Self::ACTION, request);
                let entries = read_all(Self::ACTION, $entries, Self::read)?;
                Ok(Page::new(entries, $output.next_token()))
            }
        })?
    )*};
}

described! {
    Volume by VolumeId: id in zone,
        DescribeVolumes, describe_volumes, set_volume_ids, |output| output.volumes(),
        pages of 500;
    Instance by InstanceId: id in zone,
        DescribeInstances, describe_instances, set_instance_ids,
        |output| output.reservations().iter().flat_map(|r| r.instances()), pages of 1000;
    VolumeStatus by VolumeId: volume,
        DescribeVolumeStatus, describe_volume_status, set_volume_ids,
        |output| output.volume_statuses(), pages of 1000;
    // Only running instances have a status.
    InstanceStatus by InstanceId: id,
        DescribeInstanceStatus, describe_instance_status, set_instance_ids,
        |output| output.instance_statuses(), at most MAX_STATUSES_PER_CALL;
    // By id also those that another account shares. Without an owner a list would hold every
    // public snapshot of the Region.
    Snapshot by SnapshotId: id,
        DescribeSnapshots, describe_snapshots, set_snapshot_ids, |output| output.snapshots(),
        pages of 1000 of owner_ids "self";
    Modification by VolumeId: volume,
        DescribeVolumesModifications, describe_volumes_modifications, set_volume_ids,
        |output| output.volumes_modifications(), of each modifications::latest, pages of 500;
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
            let found = core.call(V::ACTION, None, deadline, Tries::One, describe).await?;
            for value in &found {
                by_id.zones.learn(value.id(), value.zone());
            }
            let found = found.into_iter();
            Ok(found.map(|value| (value.id().clone(), value)).collect())
        })
        .await
}

#[derive(Clone)]
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
        Ok(answers)
    }
}

/// Reads every page of a list; each page is a call of its own.
pub(super) async fn describe_every_page<V: Listed>(
    core: &Core,
    filters: &[Filter],
    deadline: Instant,
    tries: Tries,
) -> Result<Vec<V>, Ec2Error> {
    read_pages(V::ACTION, |token| async move {
        let send = || V::describe_page(core, filters, V::MAX_PAGE, token.clone());
        core.call(V::ACTION, None, deadline, tries, send).await
    })
    .await
}

/// A value that the CO gave a name, which a tag holds.
pub(super) trait Named: Listed {
    /// The tag, as the Go driver writes it.
    const NAME_TAG: &'static str;

    fn tags(&self) -> &BTreeMap<String, String>;
}

impl Named for Volume {
    const NAME_TAG: &'static str = "CSIVolumeName";

    fn tags(&self) -> &BTreeMap<String, String> {
        &self.tags
    }
}

impl Named for Snapshot {
    const NAME_TAG: &'static str = "CSIVolumeSnapshotName";

    fn tags(&self) -> &BTreeMap<String, String> {
        &self.tags
    }
}

/// This account's values by name. Several values may have the same name.
pub(super) struct ByName<V> {
    core: Arc<Core>,
    value: PhantomData<fn() -> V>,
}

impl<V> ByName<V> {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, value: PhantomData }
    }
}

impl<V: Named> Source for ByName<V> {
    type Key = String;
    type Value = Vec<V>;
    const ACTION: Action = V::ACTION;

    async fn fetch(
        &self,
        keys: &[String],
        deadline: Instant,
    ) -> Result<BTreeMap<String, LookResult<Vec<V>>>, Ec2Error> {
        let values = keys.iter().map(|name| escape_wildcards(name));
        let filters = [filter(&format!("tag:{}", V::NAME_TAG), values)];
        let found = describe_every_page::<V>(&self.core, &filters, deadline, Tries::One).await?;
        let mut named: BTreeMap<String, Vec<V>> = BTreeMap::new();
        for value in found {
            if let Some(name) = value.tags().get(V::NAME_TAG).cloned() {
                named.entry(name).or_default().push(value);
            }
        }
        Ok(named.into_iter().map(|(name, values)| (name, LookResult::Present(values))).collect())
    }
}
