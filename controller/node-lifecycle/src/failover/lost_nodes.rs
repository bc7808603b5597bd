//! How long nodes have not been Ready, as observed by this process.
//!
//! The durations come from this process's own clock and observations, so that no other machine's
//! clock matters. A new process has observed no node for long.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time since when each node is lost.
#[derive(Debug)]
pub struct Lost {
    long: Duration,
    since: Mutex<HashMap<String, Instant>>,
}

impl Lost {
    /// Creates an empty state; `long` is the threshold of [`Lost::is_long`].
    pub fn new(long: Duration) -> Self {
        Self { long, since: Mutex::default() }
    }

    /// Records that exactly these nodes are lost now.
    pub fn note<'a>(&self, lost: impl Iterator<Item = &'a str>, now: Instant) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = lost
            .map(|node| {
                let first = since.get(node).copied().unwrap_or(now);
                (node.to_owned(), first)
            })
            .collect();
    }

    /// Returns whether the node was lost at every observation for that long.
    pub fn is_long(&self, node: &str, now: Instant) -> bool {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let since = since.get(node);
        since.is_some_and(|since| now.saturating_duration_since(*since) >= self.long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn healthy_observation_resets_lost_time() {
        let lost = Lost::new(Duration::from_secs(300));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        lost.note(["a", "b"].into_iter(), at(0));
        lost.note(["a"].into_iter(), at(200));
        lost.note(["a", "b"].into_iter(), at(250));
        assert!(!lost.is_long("a", at(299)));
        assert!(lost.is_long("a", at(300)));
        assert!(!lost.is_long("b", at(300)));
        lost.note([].into_iter(), at(400));
        assert!(!lost.is_long("a", at(900)));
    }
}
