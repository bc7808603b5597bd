//! Measured figures beside their bounds.

use std::time::Duration;

/// The middle of `samples`; zero of none.
pub fn median(samples: &[Duration]) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The value with its unit.
    pub measured: String,
    /// What no implementation can go below, measured in the same run where there is such a thing.
    pub bound: String,
    /// The target for a release build.
    pub target: String,
    /// How many samples, and of what.
    pub basis: String,
}

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    lines: Vec<Figure>,
}

impl Figures {
    /// Adds a line.
    pub fn add(
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

    /// The table.
    pub fn table(&self) -> String {
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

/// Milliseconds with one digit, or two below ten.
pub fn milliseconds(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    if ms < 10.0 {
        format!("{ms:.2} ms")
    } else {
        format!("{ms:.1} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an even count it is the upper of the two middle samples; an empty list gives 0.
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
