//! A value that others wait for, and the outcome of work that several wait for.
//!
//! Those who wait are woken in the order in which they began to; tokio's `watch` wakes them at random, and a seeded history must replay exactly.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value and those who wait for it.
#[derive(Debug, Default)]
pub struct Signal<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone> Signal<T> {
    /// With its first value.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        // Only whole values are put in: a panic elsewhere does not spoil it.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value as it is.
    pub fn get(&self) -> T {
        self.lock().clone()
    }

    /// Changes the value and wakes all who wait.
    pub fn set(&self, value: T) {
        *self.lock() = value;
        self.changed.notify_waiters();
    }

    /// Returns the value as soon as it is so.
    pub async fn until(&self, so: impl Fn(&T) -> bool) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let value = self.get();
            if so(&value) {
                return value;
            }
            changed.await;
        }
    }
}

#[derive(Clone, Debug)]
enum Course<T> {
    UnderWay,
    Ended(T),
    Lost,
}

/// What work comes to, for all who wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome<T>(Arc<Signal<Course<T>>>);

/// Says what the work has come to. Dropped before that, the outcome is lost, and those who wait learn that.
#[derive(Debug)]
pub(crate) struct Teller<T: Clone>(Arc<Signal<Course<T>>>);

/// For work that begins.
pub(crate) fn outcome<T: Clone>() -> (Teller<T>, Outcome<T>) {
    let course = Arc::new(Signal::new(Course::UnderWay));
    (Teller(Arc::clone(&course)), Outcome(course))
}

impl<T: Clone> Outcome<T> {
    /// Waits until the work has ended; `None` when it ended without a word, by a panic.
    pub(crate) async fn wait(&self) -> Option<T> {
        match self
            .0
            .until(|course| !matches!(course, Course::UnderWay))
            .await
        {
            Course::Ended(value) => Some(value),
            Course::UnderWay | Course::Lost => None,
        }
    }
}

impl<T: Clone> Teller<T> {
    /// Ends the work.
    pub(crate) fn tell(self, value: T) {
        self.0.set(Course::Ended(value));
    }
}

impl<T: Clone> Drop for Teller<T> {
    fn drop(&mut self) {
        let under_way = matches!(*self.0.lock(), Course::UnderWay);
        if under_way {
            self.0.set(Course::Lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_wait_are_woken_in_their_order_whatever_the_runtime_draws() {
        let signal = Arc::new(Signal::new(false));
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiting: Vec<_> = (0..32)
            .map(|n| {
                let (signal, order) = (Arc::clone(&signal), Arc::clone(&order));
                tokio::spawn(async move {
                    signal.until(|set| *set).await;
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
    async fn an_outcome_is_told_to_all_before_and_after_or_lost() {
        let (teller, outcome) = outcome();
        let early = tokio::spawn({
            let outcome = outcome.clone();
            async move { outcome.wait().await }
        });
        tokio::task::yield_now().await;
        teller.tell(7);
        assert_eq!(early.await.unwrap(), Some(7));
        assert_eq!(outcome.wait().await, Some(7));

        let (teller, lost) = super::outcome::<u8>();
        let early = tokio::spawn({
            let lost = lost.clone();
            async move { lost.wait().await }
        });
        tokio::task::yield_now().await;
        drop(teller);
        assert_eq!(early.await.unwrap(), None);
        assert_eq!(lost.wait().await, None);
    }
}
