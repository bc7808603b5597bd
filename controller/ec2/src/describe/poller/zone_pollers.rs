//! One poller per zone, so that reads of a zone that fails or does not answer do not hold up
//! callers that ask about another zone.
//!
//! EC2 fails a call that names ids of a zone with an outage (EC2 API reference, DescribeInstances).
//! Resources whose zone is not known yet have a poller of their own; its first answer shows the
//! zone.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::{Poller, Source, await_answers};
use crate::describe::by_id::Zones;
use crate::model::LookResult;
use crate::pacing::poll_budget::Budget;
use crate::sdk::call::Core;

/// The pollers of one Describe API.
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
        let mut pollers = self.pollers.lock().unwrap_or_else(PoisonError::into_inner);
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
