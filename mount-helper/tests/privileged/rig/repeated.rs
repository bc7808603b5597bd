//! What happens again and again beside a test's requests.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// A thread that repeats a step until this value is dropped.
pub(crate) struct Repeated<T> {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Repeated<T> {
    /// Repeats a step, with a pause after each. The step changes the state.
    pub(crate) fn start(
        mut state: T,
        pause: Duration,
        step: impl Fn(&mut T) + Send + 'static,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                step(&mut state);
                sleep(pause);
            }
            state
        });
        Self { over, thread: Some(thread) }
    }

    /// Ends the thread, and returns the state.
    pub(crate) fn end(mut self) -> T {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("a thread");
        thread.join().expect("each step succeeds")
    }
}

impl<T> Drop for Repeated<T> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
