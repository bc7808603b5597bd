//! Measured figures with their bounds.

use std::fmt::Display;
use std::time::Duration;

/// Returns the median of `samples`, or zero without samples.
pub(super) fn median(samples: &[Duration]) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// The figures of a run, as the lines of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    lines: String,
}

impl Figures {
    /// Adds a line: the measured quantity, its value with the unit, the limit that no
    /// implementation can beat (measured in the same run where possible), the target for a release
    /// build, and the number and the kind of samples.
    pub(super) fn add(
        &mut self,
        name: &str,
        measured: impl Display,
        bound: impl Display,
        target: &str,
        basis: impl Display,
    ) {
        let (measured, bound) = (measured.to_string(), bound.to_string());
        self.lines += &format!("{name:<52} {measured:>16} {bound:>22} {target:>14}  {basis}\n");
    }

    /// Formats the table.
    pub(super) fn table(&self) -> String {
        let mut head = Self::default();
        head.add("figure", "measured", "bound", "target", "basis");
        head.lines + &self.lines
    }
}

/// Formats milliseconds with one decimal place, or two below ten.
pub(super) fn milliseconds(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.1} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_takes_upper_middle_of_sorted_samples() {
        let ms = Duration::from_millis;
        for (samples, middle) in [
            (vec![], ms(0)),
            (vec![ms(3)], ms(3)),
            (vec![ms(9), ms(1), ms(5)], ms(5)),
            (vec![ms(4), ms(1), ms(3), ms(2)], ms(3)),
        ] {
            assert_eq!(median(&samples), middle);
        }
    }
}
