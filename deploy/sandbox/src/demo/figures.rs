//! Measured figures with their bounds.

use std::time::Duration;

/// Returns the median of `samples`, or zero without samples.
pub(super) fn median(samples: &[Duration]) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// The measured quantity.
    pub name: String,
    /// The value with its unit.
    pub measured: String,
    /// The limit that no implementation can beat, measured in the same run where possible.
    pub bound: String,
    /// The target for a release build.
    pub target: String,
    /// The number and the kind of samples.
    pub basis: String,
}

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    lines: Vec<Figure>,
}

impl Figures {
    /// Adds a line.
    pub(super) fn add(
        &mut self,
        name: &str,
        measured: String,
        bound: String,
        target: &str,
        basis: String,
    ) {
        self.lines.push(Figure {
            name: name.to_owned(),
            measured,
            bound,
            target: target.to_owned(),
            basis,
        });
    }

    /// Formats the table.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{:<52} {:>16} {:>22} {:>14}  {}\n",
            "figure", "measured", "bound", "target", "basis"
        );
        for line in &self.lines {
            text.push_str(&format!(
                "{:<52} {:>16} {:>22} {:>14}  {}\n",
                line.name, line.measured, line.bound, line.target, line.basis
            ));
        }
        text
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

    /// With an even count, the median is the upper of the two middle samples; an empty list gives
    /// 0.
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
