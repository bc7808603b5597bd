//! The results of EC2's checks of a volume (EBS user guide, "Amazon EBS volume status checks").

use serde::{Deserialize, Serialize};

/// The results of the checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct VolumeChecks {
    /// Whether EC2 has disabled I/O because the data may be inconsistent.
    pub io_disabled: bool,
    pub performance: Performance,
}

/// The performance of a volume compared with what was provisioned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Performance {
    /// As provisioned.
    #[default]
    Normal,
    /// Below what was provisioned.
    Degraded,
    /// Far below what was provisioned.
    SeverelyDegraded,
    /// No I/O completes.
    Stalled,
}

impl VolumeChecks {
    /// Returns EC2's overall status.
    pub(crate) fn status(self) -> &'static str {
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
            let checks = VolumeChecks { io_disabled, performance };
            assert_eq!(checks.status(), status, "{checks:?}");
        }
    }
}
