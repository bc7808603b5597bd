//! A value that others wait for. They are woken in the order in which they began to wait; tokio's `watch` wakes them at random, and a history must replay.

use std::pin::pin;
use std::sync::Mutex;

use tokio::sync::Notify;

/// A value and those who wait for it.
#[derive(Debug, Default)]
pub(crate) struct Signal<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Signal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    pub(crate) fn get(&self) -> T {
        *self.value.lock().unwrap()
    }

    pub(crate) fn set(&self, value: T) {
        *self.value.lock().unwrap() = value;
        self.changed.notify_waiters();
    }

    /// Returns the value as soon as it is so.
    pub(crate) async fn until(&self, so: impl Fn(T) -> bool) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let value = self.get();
            if so(value) {
                return value;
            }
            changed.await;
        }
    }
}
