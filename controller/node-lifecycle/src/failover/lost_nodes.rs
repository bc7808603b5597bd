//! How long nodes have not been Ready, as observed by this process.
//!
//! The durations come from this process's own clock and observations, so that no other machine's
//! clock matters. A new process has observed no node for long.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct LostNodes {
    threshold: Duration,
    since: Mutex<HashMap<String, Instant>>,
}

impl LostNodes {
    pub(super) fn new(threshold: Duration) -> Self {
        Self { threshold, since: Mutex::default() }
    }

    pub(super) fn observe<'a>(&self, lost: impl Iterator<Item = &'a str>, now: Instant) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let first = |node: &str| (node.to_owned(), since.get(node).copied().unwrap_or(now));
        *since = lost.map(first).collect();
    }

    pub(super) fn is_lost_for_long(&self, node: &str, now: Instant) -> bool {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let since = since.get(node);
        since.is_some_and(|since| now.saturating_duration_since(*since) >= self.threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn healthy_observation_resets_lost_time() {
        let lost = LostNodes::new(Duration::from_secs(300));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        lost.observe(["a", "b"].into_iter(), at(0));
        lost.observe(["a"].into_iter(), at(200));
        lost.observe(["a", "b"].into_iter(), at(250));
        assert!(!lost.is_lost_for_long("a", at(299)));
        assert!(lost.is_lost_for_long("a", at(300)));
        assert!(!lost.is_lost_for_long("b", at(300)));
        lost.observe([].into_iter(), at(400));
        assert!(!lost.is_lost_for_long("a", at(900)));
    }
}
