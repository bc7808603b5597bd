//! Runs histories that depend on seeds, several at a time.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Builder;

/// Returns the seeds in `HISTORY_SEEDS` (`7`, `1-200`), or the first `many` seeds without that
/// variable.
fn chosen(many: u64) -> RangeInclusive<u64> {
    let Ok(given) = std::env::var("HISTORY_SEEDS") else { return 1..=many };
    let (from, to) = given.split_once('-').unwrap_or((&given, &given));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) => from..=to,
        _ => panic!("HISTORY_SEEDS={given:?} is neither a seed nor a range as 1-20"),
    }
}

/// Runs the history of each seed, `at_once` of them at a time. Returns their results, and panics
/// when one failed. A history that returns `None` cannot run here; it ends its thread.
pub fn each<T: Debug + Send>(
    many: u64,
    at_once: usize,
    history: impl AsyncFn(u64) -> Option<Result<T, String>> + Sync,
) -> Vec<T> {
    let seeds = chosen(many);
    let next = AtomicU64::new(*seeds.start());
    let (failed, made) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    match runtime.block_on(history(seed)) {
                        None => return,
                        Some(Ok(one)) => {
                            println!("seed {seed}: {one:?}");
                            made.lock().unwrap().push(one);
                        }
                        Some(Err(wrong)) => {
                            println!("seed {seed}: {wrong}");
                            failed.lock().unwrap().push(seed);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "seeds {failed:?}: HISTORY_SEEDS=N runs one of them alone");
    made.into_inner().unwrap()
}
