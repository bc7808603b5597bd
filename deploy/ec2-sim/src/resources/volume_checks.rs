//! What EC2's checks of a volume find (EBS user guide, "Amazon EBS volume status checks").

use serde::{Deserialize, Serialize};

/// The results of the checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// EC2 has stopped reads and writes, because the data may be inconsistent.
    pub io_disabled: bool,
    /// How fast it is.
    pub performance: Performance,
}

/// How fast a volume is, beside what it was provisioned for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Performance {
    /// As it should be.
    #[default]
    Normal,
    /// Slower.
    Degraded,
    /// Far slower.
    SeverelyDegraded,
    /// Nothing gets through.
    Stalled,
}

impl Performance {
    /// EC2's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Degraded => "degraded",
            Self::SeverelyDegraded => "severely-degraded",
            Self::Stalled => "stalled",
        }
    }
}

impl Checks {
    /// The sum of the checks.
    pub fn status(self) -> &'static str {
        match (self.io_disabled, self.performance) {
            (true, _) | (_, Performance::Stalled) => "impaired",
            (false, Performance::Degraded | Performance::SeverelyDegraded) => "warning",
            (false, Performance::Normal) => "ok",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_check_decides_volume_status() {
        use Performance::{Degraded, Normal, SeverelyDegraded, Stalled};
        for (io_disabled, performance, status) in [
            (false, Normal, "ok"),
            (false, Degraded, "warning"),
            (false, SeverelyDegraded, "warning"),
            (false, Stalled, "impaired"),
            (true, Normal, "impaired"),
            (true, Degraded, "impaired"),
        ] {
            let checks = Checks {
                io_disabled,
                performance,
            };
            assert_eq!(checks.status(), status, "{checks:?}");
        }
    }
}
