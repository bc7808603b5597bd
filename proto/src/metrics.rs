//! Registration of metrics, the same for all processes.

use std::hash::Hash;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::{self, Counter};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::{self, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// A metric that can be given a sample.
pub trait Sampled {
    /// Creates a sample, with empty labels.
    fn create_sample(&self);
}

impl<N, A: counter::Atomic<N>> Sampled for Counter<N, A> {
    fn create_sample(&self) {}
}

impl<N, A: gauge::Atomic<N>> Sampled for Gauge<N, A> {
    fn create_sample(&self) {}
}

impl Sampled for Histogram {
    fn create_sample(&self) {}
}

impl<S, M, C> Sampled for Family<S, M, C>
where
    S: EncodeLabelSet + Clone + Default + Eq + Hash,
    M: Clone,
    C: MetricConstructor<M>,
{
    fn create_sample(&self) {
        drop(self.get_or_create_owned(&S::default()));
    }
}

/// The metrics of a process.
#[derive(Debug, Default)]
pub struct Metrics {
    registry: Registry,
    prefix: &'static str,
    is_example: bool,
}

impl Metrics {
    /// Creates the metrics of a process, or those of an example in which each metric has a sample.
    pub fn new(is_example: bool) -> Self {
        Self { is_example, ..Self::default() }
    }

    /// Puts this before the names of the metrics that are registered from now on.
    pub fn set_prefix(&mut self, prefix: &'static str) {
        self.prefix = prefix;
    }

    /// Registers a metric and returns it. A counter's name is without `_total`.
    pub fn register<M>(&mut self, name: &str, help: &str, metric: M) -> M
    where
        M: Metric + Clone + Sampled,
    {
        if self.is_example {
            metric.create_sample();
        }
        self.registry.register(format!("{}{name}", self.prefix), help, metric.clone());
        metric
    }

    /// Returns the library's registry, for metrics that are collected when they are read.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Returns the page, as OpenMetrics.
    pub fn page(&self) -> String {
        let mut page = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut page, &self.registry);
        page
    }
}
