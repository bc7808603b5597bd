//! Chance that a seed decides: a sequence of its own for each purpose, so that one more draw here
//! moves nothing there.

use std::time::Duration;

use ebs_csi_controller::ec2::Random;

/// One sequence.
#[derive(Debug)]
pub(crate) struct Dice(Random);

impl Dice {
    /// The sequence of this history for this purpose.
    pub(crate) fn of(seed: u64, purpose: &str) -> Self {
        // FNV-1a: any fixed mixing does.
        let mixed = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(Random::new(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mixed,
        ))
    }

    /// True so often.
    pub(crate) fn chance(&self, probability: f64) -> bool {
        self.0.fraction() < probability
    }

    /// 0 to `n - 1`.
    pub(crate) fn below(&self, n: usize) -> usize {
        usize::try_from(self.0.number() % u64::try_from(n).expect("small")).expect("small")
    }

    /// One of them.
    pub(crate) fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A span between the two, in milliseconds.
    pub(crate) fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.0.number() % (to - from).max(1))
    }

    /// A seed for something else.
    pub(crate) fn seed(&self) -> u64 {
        self.0.number()
    }
}
