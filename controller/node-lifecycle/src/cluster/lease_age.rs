//! How long each node's Lease has not been renewed, by this process's own clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebs_csi_proto::lock;
use futures_util::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde::de::IgnoredAny;

use super::{Object, Retained, Watched};

const NAMESPACE: &str = "kube-node-lease";

#[derive(Clone, Debug)]
struct LeaseRow {
    node: String,
    /// The time of the last renewal, by the node's clock.
    renewed: Option<Timestamp>,
}

impl Retained for LeaseRow {
    type Kind = Lease;
    type Spec = LeaseSpec;
    type Status = IgnoredAny;

    fn new(object: Object<LeaseSpec, IgnoredAny>) -> Option<Self> {
        Some(Self {
            node: object.metadata.name,
            renewed: object.spec.renew_time.map(|time| time.0),
        })
    }
}

/// The observed renewals.
#[derive(Debug, Default)]
pub struct LeaseAges {
    renewals: Mutex<HashMap<String, Renewal>>,
}

#[derive(Debug)]
struct Renewal {
    time: Option<Timestamp>,
    /// The time of the observed change. `None`: no change has been observed, so the age is unknown.
    changed_at: Option<Instant>,
}

impl LeaseAges {
    /// Returns how long the node's Lease has not been renewed; `None`: unknown.
    pub fn age(&self, node: &str) -> Option<Duration> {
        Some(lock(&self.renewals).get(node)?.changed_at?.elapsed())
    }

    /// Records that the node's Lease was seen at `now` with this time of its last renewal, by the
    /// node's clock.
    pub fn observe(&self, node: &str, time: Option<Timestamp>, now: Instant) {
        let mut renewals = lock(&self.renewals);
        match renewals.get_mut(node) {
            Some(renewal) if renewal.time == time => {}
            Some(renewal) => {
                renewal.time = time;
                renewal.changed_at = Some(now);
            }
            None => drop(renewals.insert(node.to_owned(), Renewal { time, changed_at: None })),
        }
    }

    fn forget(&self, node: &str) {
        lock(&self.renewals).remove(node);
    }

    /// Follows the Leases for ever.
    pub async fn run(self: Arc<Self>, client: Client) {
        let api: Api<Watched<LeaseRow>> = Api::namespaced(client, NAMESPACE);
        let config = watcher::Config::default();
        let mut events = watcher(api, config).default_backoff().boxed();
        loop {
            match events.try_next().await {
                Ok(Some(Event::Apply(lease) | Event::InitApply(lease))) => {
                    if let Some(lease) = lease.row() {
                        self.observe(&lease.node, lease.renewed, Instant::now());
                    }
                }
                Ok(Some(Event::Delete(lease))) => {
                    if let Some(lease) = lease.row() {
                        self.forget(&lease.node);
                    }
                }
                Ok(Some(Event::Init | Event::InitDone)) => {}
                Ok(None) => return,
                Err(error) => tracing::warn!(%error, "watching node leases was interrupted"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_age_is_unknown_before_observed_renewal() {
        let ages = LeaseAges::default();
        let now = Instant::now();
        let first = Some("2026-01-01T00:00:00Z".parse().unwrap());
        let second = Some("2026-01-01T00:00:10Z".parse().unwrap());
        ages.observe("a", first, now);
        ages.observe("a", first, now);
        assert_eq!(ages.age("a"), None);
        ages.observe("a", second, now);
        assert!(ages.age("a").is_some());
        ages.forget("a");
        assert_eq!(ages.age("a"), None);
        // The Lease reappears with the same time: nothing was renewed.
        ages.observe("a", second, now);
        assert_eq!(ages.age("a"), None);
    }
}
