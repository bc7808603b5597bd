//! Order statistics of samples.

use serde::{Deserialize, Serialize};

/// The statistics of a set of samples, in the samples' unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) least: f64,
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
    /// The 99th percentile: 99 of 100 samples are at or below. With fewer than 100 samples, the
    /// maximum.
    pub(crate) p99: f64,
    pub(crate) greatest: f64,
}

impl Summary {
    /// Computes the statistics of `samples`; all are zero without samples.
    pub(crate) fn of(samples: &[f64]) -> Self {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let rank = |percent: usize| {
            let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
            sorted.get(place).copied().unwrap_or_default()
        };
        Self {
            count: sorted.len(),
            least: sorted.first().copied().unwrap_or_default(),
            lower: rank(25),
            median: rank(50),
            upper: rank(75),
            p99: rank(99),
            greatest: sorted.last().copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank_and_ignore_nan() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let of = Summary::of(&hundred);
        assert_eq!(
            (of.least, of.lower, of.median, of.upper, of.p99, of.greatest),
            (1.0, 25.0, 50.0, 75.0, 99.0, 100.0)
        );
        let few = Summary::of(&[3.0, 1.0, f64::NAN, 2.0]);
        assert_eq!((few.count, few.median, few.p99), (3, 2.0, 3.0));
        assert_eq!(Summary::of(&[]), Summary::default());
        assert_eq!(Summary::of(&[7.0]).median, 7.0);
    }
}
