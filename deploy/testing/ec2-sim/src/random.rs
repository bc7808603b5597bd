//! A small random number generator: the same seed gives the same sequence on every machine.

/// SplitMix64: a counter that passes through a mixing function (Steele, Lea, Flood: "Fast
/// splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator for `seed` and a purpose, so that each purpose has its own sequence.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a over the purpose; the hash only has to differ between purposes.
        let tag = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { state: seed ^ tag }
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform value in `0.0 <= x < 1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        // An f64 holds 53 bits exactly.
        (self.bits() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// Returns a standard normal value (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let u = 1.0 - self.unit();
        let v = self.unit();
        (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    }

    /// Returns `digits` lower-case hexadecimal digits.
    pub(crate) fn hex(&mut self, digits: usize) -> String {
        use std::fmt::Write as _;
        let mut out = String::with_capacity(digits + 16);
        while out.len() < digits {
            let _ = write!(out, "{:016x}", self.bits());
        }
        out.truncate(digits);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_depends_only_on_seed_and_purpose() {
        let take = |seed, purpose| {
            let mut r = Random::new(seed, purpose);
            [r.bits(), r.bits(), r.bits()]
        };
        assert_eq!(take(1, "ids"), take(1, "ids"));
        assert_ne!(take(1, "ids"), take(1, "latency"));
        assert_ne!(take(1, "ids"), take(2, "ids"));
    }

    #[test]
    fn unit_values_fill_the_interval_evenly() {
        let mut random = Random::new(3, "t");
        let values: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(values.iter().all(|value| (0.0..1.0).contains(value)));
        let mean = values.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
