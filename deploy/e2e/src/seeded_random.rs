//! Random numbers from a seed (SplitMix64).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One sequence of numbers, which its users share.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// Returns the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        // The factor differs from the sequence's step; otherwise neighbouring seeds would give the
        // same sequence, shifted.
        Self(AtomicU64::new(seed.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    fn number(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `n - 1`.
    pub fn below(&self, n: u64) -> u64 {
        self.number() % n
    }

    /// Returns true with a probability of `often` percent.
    pub fn percent(&self, often: u64) -> bool {
        self.below(100) < often
    }

    /// Returns a duration from `from` up to, but not including, `to` milliseconds.
    pub fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below((to - from).max(1)))
    }
}
