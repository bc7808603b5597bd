//! Pseudo-random numbers from a seed: each purpose has its own sequence, so that one more draw for
//! one purpose does not change another.

use std::time::Duration;

use ebs_csi_ec2::Random;

#[derive(Debug)]
pub(crate) struct SeededRandom(Random);

impl SeededRandom {
    pub(crate) fn of(seed: u64, purpose: &str) -> Self {
        // FNV-1a; any fixed mixing would do.
        let mixed = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mixed))
    }

    pub(crate) fn chance(&self, probability: f64) -> bool {
        self.0.fraction() < probability
    }

    /// Returns a number from 0 to `n - 1`.
    pub(crate) fn below(&self, n: usize) -> usize {
        usize::try_from(self.0.number() % u64::try_from(n).expect("small")).expect("small")
    }

    pub(crate) fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Returns a duration between the two bounds, which are in milliseconds.
    pub(crate) fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.0.number() % (to - from).max(1))
    }

    pub(crate) fn seed(&self) -> u64 {
        self.0.number()
    }
}
