//! A measured figure: its rows, its targets, and whether the targets are met.

use serde::{Deserialize, Serialize};

use super::summary::Summary;

/// The origin of a row's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Ours,
    /// The limit that no driver can beat, measured in the same run or computed from EC2's own
    /// rates.
    Bound,
    /// Another driver, measured in the same run.
    Peer,
    /// A part of another row, or an explanation of one.
    Part,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FigureRow {
    pub(crate) label: String,
    pub(crate) role: Role,
    pub(crate) summary: Summary,
    /// All samples in the order of measurement; not in committed files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) samples: Vec<f64>,
}

/// The statistic that a target limits. Other load on a shared machine disturbs the least sample
/// least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Statistic {
    Least,
    Median,
    P99,
    Greatest,
}

impl Statistic {
    pub(crate) fn of(self, summary: &Summary) -> f64 {
        match self {
            Self::Least => summary.least,
            Self::Median => summary.median,
            Self::P99 => summary.p99,
            Self::Greatest => summary.greatest,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    statistic: Statistic,
    /// The limit, in the figure's unit or as a multiple of the bound.
    limit: f64,
    /// Whether `limit` is a multiple of the same statistic of the first [`Role::Bound`] row.
    #[serde(default)]
    of_bound: bool,
    #[serde(default)]
    at_least: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) target: String,
    pub(crate) statistic: Statistic,
    /// The limit in the figure's unit.
    limit: f64,
    pub(crate) measured: f64,
    pub(crate) met: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Short name, also of the picture's file.
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    /// The rows. The targets apply to the first [`Role::Ours`] row.
    pub(crate) rows: Vec<FigureRow>,
    pub(crate) targets: Vec<Target>,
    /// How the figure is measured, and further remarks.
    pub(crate) notes: Vec<String>,
    /// The command that measures it.
    #[serde(default)]
    pub(crate) command: String,
}

impl Figure {
    pub(crate) fn new(key: &str, title: &str, unit: &str) -> Self {
        Self {
            key: key.to_owned(),
            title: title.to_owned(),
            unit: unit.to_owned(),
            rows: Vec::new(),
            targets: Vec::new(),
            notes: Vec::new(),
            command: String::new(),
        }
    }

    pub(crate) fn row(mut self, role: Role, label: &str, samples: Vec<f64>) -> Self {
        let summary = Summary::of(&samples);
        self.rows.push(FigureRow { label: label.to_owned(), role, summary, samples });
        self
    }

    /// Adds a target in the figure's unit.
    pub(crate) fn at_most(self, statistic: Statistic, limit: f64) -> Self {
        self.target(Target { statistic, limit, of_bound: false, at_least: false })
    }

    /// Adds a target as a multiple of the bound.
    pub(crate) fn at_most_times_bound(self, statistic: Statistic, limit: f64) -> Self {
        self.target(Target { statistic, limit, of_bound: true, at_least: false })
    }

    /// Adds a target in the figure's unit.
    pub(crate) fn at_least(self, statistic: Statistic, limit: f64) -> Self {
        self.target(Target { statistic, limit, of_bound: false, at_least: true })
    }

    fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    pub(crate) fn first(&self, role: Role) -> Option<&FigureRow> {
        self.rows.iter().find(|row| row.role == role)
    }

    /// Compares each target with the measurement; empty without a [`Role::Ours`] row that has
    /// samples.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let Some(ours) = self.first(Role::Ours).filter(|row| row.summary.count > 0) else {
            return Vec::new();
        };
        let verdict = |target: &Target| {
            let Target { statistic, limit, of_bound, at_least } = *target;
            let (limit, words) = if of_bound {
                let bound = statistic.of(&self.first(Role::Bound)?.summary);
                (bound * limit, format!("{limit}x bound"))
            } else {
                (limit, with_unit(limit, &self.unit))
            };
            let measured = statistic.of(&ours.summary);
            let (sign, met) =
                if at_least { ("≥", measured >= limit) } else { ("≤", measured <= limit) };
            let name = format!("{statistic:?}").to_lowercase();
            let target = format!("{name} {sign} {words}");
            Some(Verdict { target, statistic, limit, measured, met })
        };
        self.targets.iter().filter_map(verdict).collect()
    }
}

/// Formats `value` with three significant digits.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    if unit.is_empty() { number(value) } else { format!("{} {unit}", number(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_judged_on_our_first_row() {
        let figure = Figure::new("k", "t", "ms")
            .row(Role::Bound, "bare", vec![10.0])
            .row(Role::Ours, "driver", vec![10.4; 3])
            .row(Role::Peer, "other", vec![40.0])
            .at_most_times_bound(Statistic::Median, 1.05)
            .at_most(Statistic::P99, 2.0)
            .at_least(Statistic::Median, 10.4);
        let met: Vec<bool> = figure.verdicts().iter().map(|v| v.met).collect();
        assert_eq!(met, [true, false, true]);
        assert_eq!(figure.verdicts()[1].target, "p99 ≤ 2.00 ms");
        assert_eq!(figure.verdicts()[0].limit, 10.5);
    }

    #[test]
    fn target_without_samples_or_bound_has_no_verdict() {
        let figure = Figure::new("k", "t", "ms").at_most(Statistic::Median, 1.0);
        assert!(figure.verdicts().is_empty());
        let of_bound =
            figure.row(Role::Ours, "driver", vec![1.0]).at_most_times_bound(Statistic::Median, 1.0);
        assert_eq!(of_bound.verdicts().len(), 1, "a multiple of no bound");
    }

    #[test]
    fn number_shows_fewer_decimals_for_larger_values() {
        for (value, text) in
            [(0.0, "0"), (0.0123, "0.012"), (1.2345, "1.23"), (45.67, "45.7"), (1234.5, "1234")]
        {
            assert_eq!(number(value), text);
        }
    }
}
