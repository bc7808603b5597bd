//! Selects the histories to run and reports those that fail.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::history;
use super::known_bug::KnownBug;

/// Seeds above 300 whose histories failed once.
const FAILED_ONCE: [u64; 13] =
    [656, 1693, 2374, 2794, 3794, 4595, 4688, 6082, 6742, 7779, 8242, 9327, 9559];

/// Returns the seeds of `HISTORY_SEEDS` (`1-100000` or `17`), or else the first 300 and those that
/// failed once.
pub(crate) fn selected() -> Vec<u64> {
    range_of("HISTORY_SEEDS").unwrap_or_else(|| (1..=300).chain(FAILED_ONCE).collect())
}

/// Returns the seeds that the environment variable names, if it is set.
pub(crate) fn range_of(variable: &str) -> Option<Vec<u64>> {
    let value = std::env::var(variable).ok()?;
    let (from, to) = value.split_once('-').unwrap_or((&value, &value));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) if from <= to => Some((from..=to).collect()),
        _ => panic!("{variable}={value:?} is neither a seed nor a range as 1-300"),
    }
}

/// Runs something for each seed, on as many threads as the machine has processors.
pub(crate) fn each(seeds: &[u64], run: impl Fn(u64) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(*seed);
                }
            });
        }
    });
}

/// Runs all histories. Returns how many requests passed and what failed.
pub(crate) fn run(seeds: &[u64]) -> (u64, Vec<String>) {
    let requests = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let show = std::env::var_os("HISTORY_SHOW").is_some();
    each(seeds, |seed| {
        let outcome = history::run(seed, None);
        if show {
            println!("seed {seed}:\n{}", outcome.log_lines.join("\n"));
        }
        let sent = outcome.log_lines.iter().filter(|line| line.contains(" Action="));
        requests.fetch_add(sent.count() as u64, Ordering::Relaxed);
        if !outcome.violations.is_empty() {
            let text = format!("seed {seed}: {}", outcome.violations.join("\n  "));
            println!("{text}");
            failed.lock().unwrap().push((seed, text));
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    (requests.into_inner(), failed.into_iter().map(|(_, text)| text).collect())
}

/// Returns the first seed whose history shows this bug, and the violation.
pub(crate) fn first_that_finds(
    bug: KnownBug,
    mut seeds: RangeInclusive<u64>,
) -> Option<(u64, String)> {
    seeds.find_map(|seed| {
        let violations = history::run(seed, Some(bug)).violations;
        Some((seed, violations.into_iter().next()?))
    })
}
