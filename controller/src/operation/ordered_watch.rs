//! A value that tasks wait for, and the outcome of work that several tasks wait for.
//!
//! Waiting tasks are woken in the order in which they began to wait. tokio's `watch` wakes them in
//! random order, but a seeded history must replay exactly.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use ebs_csi_proto::lock;
use tokio::sync::Notify;

/// A value that tasks can wait for.
#[derive(Debug, Default)]
pub struct OrderedWatch<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone> OrderedWatch<T> {
    /// Creates the value.
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    /// Returns the current value.
    pub fn get(&self) -> T {
        lock(&self.value).clone()
    }

    /// Changes the value and wakes all waiting tasks.
    pub fn set(&self, value: T) {
        *lock(&self.value) = value;
        self.changed.notify_waiters();
    }

    /// Waits until the predicate holds, and returns the value.
    pub async fn wait_for(&self, is_met: impl Fn(&T) -> bool) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let value = self.get();
            if is_met(&value) {
                return value;
            }
            changed.await;
        }
    }
}

#[derive(Clone, Debug)]
enum WorkState<T> {
    Running,
    Ended(T),
    Lost,
}

/// The outcome of work, for all tasks that wait for it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedResult<T>(Arc<OrderedWatch<WorkState<T>>>);

/// Sets the outcome of the work. When it is dropped before, the outcome is lost and the waiting
/// tasks learn that.
#[derive(Debug)]
pub(crate) struct ResultSetter<T: Clone>(Arc<OrderedWatch<WorkState<T>>>);

/// Creates the two ends for work that begins.
pub(crate) fn watched_result<T: Clone>() -> (ResultSetter<T>, WatchedResult<T>) {
    let state = Arc::new(OrderedWatch::new(WorkState::Running));
    (ResultSetter(Arc::clone(&state)), WatchedResult(state))
}

impl<T: Clone> WatchedResult<T> {
    /// Waits until the work has ended; returns `None` when it panicked and left no result.
    pub(crate) async fn wait(&self) -> Option<T> {
        match self.0.wait_for(|state| !matches!(state, WorkState::Running)).await {
            WorkState::Ended(value) => Some(value),
            WorkState::Running | WorkState::Lost => None,
        }
    }
}

impl<T: Clone> ResultSetter<T> {
    pub(crate) fn set(self, value: T) {
        self.0.set(WorkState::Ended(value));
    }
}

impl<T: Clone> Drop for ResultSetter<T> {
    fn drop(&mut self) {
        let under_way = matches!(*lock(&self.0.value), WorkState::Running);
        if under_way {
            self.0.set(WorkState::Lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_tasks_wake_in_arrival_order() {
        let signal = Arc::new(OrderedWatch::new(false));
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiting: Vec<_> = (0..32)
            .map(|n| {
                let (signal, order) = (Arc::clone(&signal), Arc::clone(&order));
                tokio::spawn(async move {
                    signal.wait_for(|set| *set).await;
                    order.lock().unwrap().push(n);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        signal.set(true);
        for one in waiting {
            one.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..32).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn early_and_late_waiters_learn_outcome_or_loss() {
        let (setter, outcome) = watched_result();
        let early = tokio::spawn({
            let outcome = outcome.clone();
            async move { outcome.wait().await }
        });
        tokio::task::yield_now().await;
        setter.set(7);
        assert_eq!(early.await.unwrap(), Some(7));
        assert_eq!(outcome.wait().await, Some(7));

        let (setter, lost) = watched_result::<u8>();
        let early = tokio::spawn({
            let lost = lost.clone();
            async move { lost.wait().await }
        });
        tokio::task::yield_now().await;
        drop(setter);
        assert_eq!(early.await.unwrap(), None);
        assert_eq!(lost.wait().await, None);
    }
}
