//! Detaches that take long: one line each, while they do.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use tokio::time::Instant;

/// A detach that takes longer than this is worth a line in a dashboard.
const PENDING_AFTER: Duration = Duration::from_secs(60);

/// Detaches that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Detaches(Mutex<BTreeMap<(String, String), (String, Instant)>>);

impl Detaches {
    pub(super) fn set(&self, volume: &str, instance: &str, state: &str, since: Instant) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.insert(
            (volume.to_owned(), instance.to_owned()),
            (state.to_owned(), since),
        );
    }

    pub(super) fn remove(&self, volume: &str, instance: &str) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.remove(&(volume.to_owned(), instance.to_owned()));
    }
}

impl Collector for Detaches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let pending = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let shown: Vec<_> = pending
            .into_iter()
            .map(|((volume, instance), (state, since))| (volume, instance, state, since.elapsed()))
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
            let labels = [
                ("volume_id", volume),
                ("instance_id", instance),
                ("attachment_state", state),
            ];
            ConstCounter::new(waited.as_secs_f64()).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
