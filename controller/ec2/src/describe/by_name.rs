//! Volumes and snapshots by name.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use tokio::time::Instant;

use super::page::{escape_wildcards, filter};
use super::poller::Source;
use super::{Listed, describe_every_page};
use crate::calls::Action;
use crate::error::Ec2Error;
use crate::model::LookResult;
use crate::model::snapshot::Snapshot;
use crate::model::volume::Volume;
use crate::sdk::call::{Core, Tries};

/// A value that the CO gave a name, which a tag holds.
pub(crate) trait Named: Listed {
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
pub(crate) struct ByName<V> {
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
