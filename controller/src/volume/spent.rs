//! Which client tokens of a name EC2 has used up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::token::Attempt;

/// How long it is remembered. Forgetting costs one more answer of EC2, by which the number is found again.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Names that are remembered at most.
const MOST_NAMES: usize = 10_000;

/// By name, the attempt that comes next, when it is not the first.
#[derive(Clone, Debug, Default)]
pub(super) struct SpentTokens(Arc<Mutex<HashMap<String, (Attempt, Instant)>>>);

impl SpentTokens {
    /// Where to begin.
    pub(super) fn begin(&self, name: &str) -> Attempt {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match map.get(name) {
            Some((attempt, until)) if *until > Instant::now() => *attempt,
            _ => Attempt::FIRST,
        }
    }

    /// The tokens before `next` are of no use.
    pub(super) fn step(&self, name: &str, next: Attempt) {
        let now = Instant::now();
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= MOST_NAMES {
            map.retain(|_, (_, until)| *until > now);
        }
        if map.len() < MOST_NAMES || map.contains_key(name) {
            map.insert(name.to_owned(), (next, now + REMEMBERED));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_is_remembered_for_an_hour() {
        let spent = SpentTokens::default();
        let second = Attempt::FIRST.next().unwrap();
        assert_eq!(spent.begin("a"), Attempt::FIRST);
        spent.step("a", second);
        assert_eq!(
            (spent.begin("a"), spent.begin("b")),
            (second, Attempt::FIRST)
        );
        tokio::time::advance(REMEMBERED).await;
        assert_eq!(spent.begin("a"), Attempt::FIRST);
    }
}
