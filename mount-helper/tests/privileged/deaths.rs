//! A process, a disk or the power goes at each step; the retry converges.
mod acts;
mod crashes;
mod ending;
mod kills;
mod last_lines;
mod power_cut;
mod pulled;
mod unfinished;

use std::sync::{Mutex, PoisonError};

/// Runs `act` on each item in three threads, each of which waits for processes most of the time.
fn on_three_threads<T: Send>(items: impl Iterator<Item = T> + Send, act: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(item) = next() {
                    act(item);
                }
            });
        }
    });
}
