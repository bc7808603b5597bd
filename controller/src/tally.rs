//! How many operations are running, for the metric.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::metrics::Metrics;

/// Counts over all tables. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    running: AtomicUsize,
    metrics: Arc<Metrics>,
}

/// One operation that is running; it ends with this.
#[derive(Debug)]
pub(crate) struct Counted(Tally);

impl Tally {
    /// Shows the count as a metric.
    pub fn shown_by(metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Inner {
            running: AtomicUsize::new(0),
            metrics,
        }))
    }

    /// Operations that are running.
    pub fn running(&self) -> usize {
        self.0.running.load(Ordering::Relaxed)
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn count(&self) -> Counted {
        let before = self.0.running.fetch_add(1, Ordering::Relaxed);
        self.0.metrics.operations(before + 1);
        Counted(self.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let before = self.0.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.0.metrics.operations(before.saturating_sub(1));
    }
}
