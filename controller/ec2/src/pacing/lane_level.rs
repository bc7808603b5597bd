//! The state of one lane of EC2 calls, as a scrape shows it.

use std::time::Duration;

/// How full a lane is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneLevel {
    /// Tokens in the bucket.
    pub tokens: f64,
    /// The estimated refill in tokens per second.
    pub refill: f64,
    /// Calls that wait.
    pub waiting: usize,
    /// How long the caller at the head has waited since it joined.
    pub oldest: Duration,
    /// Calls under way.
    pub under_way: usize,
}
