//! Seeded randomness for jitter; not suitable for secrets.

use std::sync::{Mutex, PoisonError};

use fastrand::Rng;

/// A pseudo-random sequence, determined by its seed, that tasks share.
#[derive(Debug)]
pub struct Random(Mutex<Rng>);

impl Random {
    /// Creates the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Rng::with_seed(seed)))
    }

    /// Returns the next number.
    pub fn number(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u64(..)
    }

    /// Returns the next fraction, at least 0 and below 1.
    pub fn fraction(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}
