//! Threads that have begun before the system call filter is installed: the calls that the C library
//! and the standard library make at the start of a thread need not be in the filter.

use std::hash::RandomState;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Counts the threads that were started and have not begun.
#[derive(Debug, Clone, Default)]
pub struct ThreadStarts(Arc<(Mutex<usize>, Condvar)>);

impl ThreadStarts {
    /// Starts a thread. Fails as [`Builder::spawn`] does.
    pub fn spawn(
        &self,
        builder: Builder,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let this = self.clone();
        self.change(|starting| starting + 1);
        builder.spawn(move || {
            take_random_numbers();
            this.change(|starting| starting - 1);
            body();
        })
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let (starting, changed) = &*self.0;
        let mut starting = starting.lock().unwrap_or_else(PoisonError::into_inner);
        *starting = change(*starting);
        changed.notify_all();
    }

    /// Waits until every thread has begun.
    pub fn wait(&self) {
        take_random_numbers();
        let (starting, changed) = &*self.0;
        let starting = starting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(starting, |starting| *starting > 0));
    }
}

/// Makes the calling thread's keys of hash maps. The C library, too, prepares itself at a thread's
/// first random number; newer ones look for the number of processors then.
fn take_random_numbers() {
    let _ = RandomState::new();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn wait_returns_when_every_thread_has_begun() {
        let (starts, begun) = (ThreadStarts::default(), Arc::new(AtomicBool::new(false)));
        starts.change(|starting| starting + 1);
        let (slow, is_begun) = (starts.clone(), Arc::clone(&begun));
        let slow = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            is_begun.store(true, Ordering::SeqCst);
            slow.change(|starting| starting - 1);
        });
        starts.wait();
        assert!(begun.load(Ordering::SeqCst), "returned before");
        slow.join().expect("no panic");
        let thread = starts.spawn(Builder::new(), || ()).expect("a thread");
        starts.wait();
        thread.join().expect("no panic");
    }
}
