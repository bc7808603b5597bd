//! Seeded randomness for jitter; not suitable for secrets.

use std::sync::atomic::{AtomicU64, Ordering};

/// A pseudo-random sequence, determined by its seed (SplitMix64, Steele et al. 2014).
#[derive(Debug)]
pub struct Random(AtomicU64);

impl Random {
    /// Creates the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Returns the next number.
    pub fn number(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the next fraction, at least 0 and below 1.
    pub fn fraction(&self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_sequence_of_fractions_below_1() {
        let (a, b, c) = (Random::new(7), Random::new(7), Random::new(8));
        let take = |r: &Random| (0..1000).map(|_| r.fraction()).collect::<Vec<_>>();
        let (a, b, c) = (take(&a), take(&b), take(&c));
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert!(a.iter().all(|f| (0.0..1.0).contains(f)));
    }
}
