//! The metric of detaches that take long: one line for each while it lasts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use ebs_csi_proto::lock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use tokio::time::Instant;

use super::Metrics;

/// How long a detach must last to be shown.
const PENDING_AFTER: Duration = Duration::from_secs(60);

/// How long a detach whose deadline passed counts as the same detach: external-attacher asks for it
/// again within some minutes.
const RETRY_WITHIN: Duration = Duration::from_secs(600);

/// Detaches that have not ended.
#[derive(Debug, Default)]
pub(super) struct Detaches(Mutex<BTreeMap<(String, String), Pending>>);

#[derive(Clone, Debug)]
struct Pending {
    state: String,
    since: Instant,
    /// When the deadline passed, while nobody has asked again.
    timed_out_at: Option<Instant>,
}

impl Pending {
    fn is_given_up(&self) -> bool {
        self.timed_out_at.is_some_and(|at| at.elapsed() >= RETRY_WITHIN)
    }
}

impl Detaches {
    /// Adds a detach that is shown.
    pub(super) fn add_example(&self) {
        let since = Instant::now().checked_sub(PENDING_AFTER).unwrap_or_else(Instant::now);
        let pending = Pending { state: String::new(), since, timed_out_at: None };
        lock(&self.0).insert(Default::default(), pending);
    }
}

impl Metrics {
    /// Notes that a detach that began at `since` is still in this state. It is shown once it has
    /// lasted a minute.
    pub fn detach_pending(&self, volume: &str, instance: &str, state: &str, since: Instant) {
        let mut all = lock(&self.detaches.0);
        let key = (volume.to_owned(), instance.to_owned());
        let previous = all.get(&key).filter(|previous| !previous.is_given_up());
        let pending = Pending {
            state: state.to_owned(),
            since: previous.map_or(since, |previous| previous.since.min(since)),
            timed_out_at: None,
        };
        all.insert(key, pending);
    }

    /// Notes that the deadline of a detach passed before the detach ended. The detach stays shown
    /// as it is until it is requested again.
    pub fn detach_timed_out(&self, volume: &str, instance: &str) {
        let mut all = lock(&self.detaches.0);
        if let Some(pending) = all.get_mut(&(volume.to_owned(), instance.to_owned())) {
            pending.timed_out_at = Some(Instant::now());
        }
    }

    /// Notes that a detach ended or is not wanted any more.
    pub fn detach_ended(&self, volume: &str, instance: &str) {
        lock(&self.detaches.0).remove(&(volume.to_owned(), instance.to_owned()));
    }
}

impl Collector for Detaches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let pending = {
            let mut all = lock(&self.0);
            all.retain(|_, pending| !pending.is_given_up());
            all.clone()
        };
        let shown: Vec<_> = pending
            .into_iter()
            .map(|((volume, instance), Pending { state, since, .. })| {
                (volume, instance, state, since.elapsed())
            })
            .filter(|(_, _, _, waited)| *waited >= PENDING_AFTER)
            .collect();
        if shown.is_empty() {
            return Ok(());
        }
        let counter = ConstCounter::new(0.0);
        let mut metric = encoder.encode_descriptor(
            "aws_ebs_csi_ec2_detach_pending_seconds",
            "Seconds since a detach that has not ended was asked for",
            None,
            counter.metric_type(),
        )?;
        for (volume, instance, state, waited) in shown {
            let labels =
                [("volume_id", volume), ("instance_id", instance), ("attachment_state", state)];
            ConstCounter::new(waited.as_secs_f64()).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
