//! The results of EC2's checks of a volume (EBS user guide, "Amazon EBS volume status checks") and
//! of a running instance (EC2 user guide, "Status checks for Amazon EC2 instances").

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct VolumeChecks {
    /// Whether EC2 has disabled I/O because the data may be inconsistent.
    pub(crate) io_disabled: bool,
    pub(crate) performance: Performance,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Performance {
    #[default]
    Normal,
    Degraded,
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckResult {
    #[default]
    Ok,
    Impaired,
    /// The check was not made yet.
    Initializing,
    /// The check could not be made.
    InsufficientData,
}

impl CheckResult {
    /// Returns EC2's name of the reachability that belongs to the status.
    pub(crate) fn reachability(self) -> String {
        match self {
            Self::Ok => "passed".to_owned(),
            Self::Impaired => "failed".to_owned(),
            Self::Initializing | Self::InsufficientData => super::name_of(self),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct InstanceChecks {
    /// The check of the host, with its network and power.
    pub(crate) system: CheckResult,
    /// The check of the guest.
    pub instance: CheckResult,
    pub(crate) attached_ebs: CheckResult,
}

/// Results to report from now on; a result that is not given stays.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChecksChange {
    pub(crate) system: Option<CheckResult>,
    pub instance: Option<CheckResult>,
    pub(crate) attached_ebs: Option<CheckResult>,
}

impl InstanceChecks {
    pub fn with(self, findings: ChecksChange) -> Self {
        Self {
            system: findings.system.unwrap_or(self.system),
            instance: findings.instance.unwrap_or(self.instance),
            attached_ebs: findings.attached_ebs.unwrap_or(self.attached_ebs),
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
