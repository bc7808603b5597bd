//! Counts the running operations, for the metric and to notice when none runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::metrics::Metrics;

/// A count over all tables. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperationCount(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    running: AtomicUsize,
    /// Notified when the last operation ended.
    became_idle: Notify,
    metrics: Arc<Metrics>,
}

/// One running operation, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(OperationCount);

impl OperationCount {
    pub(crate) fn with_metrics(metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Inner { running: AtomicUsize::new(0), became_idle: Notify::new(), metrics }))
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(Ordering::Relaxed)
    }

    /// Calls `callback` each time that nothing has run for `pause` after an operation.
    pub(crate) async fn on_idle(self, pause: Duration, mut callback: impl FnMut()) {
        loop {
            self.0.became_idle.notified().await;
            loop {
                match tokio::time::timeout(pause, self.0.became_idle.notified()).await {
                    // An operation ran meanwhile.
                    Ok(()) => {}
                    Err(_) if self.running() > 0 => break,
                    Err(_) => {
                        callback();
                        break;
                    }
                }
            }
        }
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
        if before == 1 {
            self.0.0.became_idle.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    /// A gap between two operations that is shorter than the pause is not idle.
    #[tokio::test(start_paused = true)]
    async fn idle_callback_runs_once_after_last_operation() {
        let operation_count = OperationCount::default();
        let callbacks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&callbacks);
        let idle_watch = operation_count.clone().on_idle(PAUSE, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        tokio::spawn(idle_watch);
        let callbacks_after = async |wait: Duration| {
            tokio::time::sleep(wait).await;
            callbacks.load(Ordering::Relaxed)
        };
        assert_eq!(callbacks_after(PAUSE * 5).await, 0, "nothing ran yet");
        drop(operation_count.count());
        assert_eq!(callbacks_after(PAUSE / 2).await, 0);
        let second = operation_count.count();
        assert_eq!(callbacks_after(PAUSE * 5).await, 0, "one runs");
        drop(second);
        assert_eq!(callbacks_after(PAUSE * 2).await, 1);
        assert_eq!(callbacks_after(PAUSE * 60).await, 1, "once is enough");
    }
}
