//! Maps EC2's status of a volume to the effect on its users.

use crate::ec2::{Health, Volume, VolumeState, VolumeStatus};

/// The severity of a problem (CSI specification, `VolumeHealthErrorType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Usable, and slower than it should be.
    Degraded,
    /// Reads and writes do not complete.
    Inaccessible,
    /// The volume's data is lost.
    DataLoss,
}

/// A problem of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The severity.
    pub severity: Severity,
    /// One word, for programs; a volume has at most one problem of each word.
    pub reason: &'static str,
    /// The next step, for people.
    pub message: &'static str,
}

/// Results of EC2's checks (EBS user guide, "Amazon EBS volume status checks").
const CHECKS: [(&str, &str, Problem); 4] = [
    (
        "io-enabled",
        "failed",
        Problem {
            severity: Severity::Inaccessible,
            reason: "IoDisabled",
            message: "EC2 stopped reads and writes because the data may be inconsistent; check the file system, then enable I/O (EnableVolumeIO)",
        },
    ),
    (
        "io-performance",
        "degraded",
        Problem {
            severity: Severity::Degraded,
            reason: "IoPerformanceDegraded",
            message: "the volume is slower than it was provisioned for; EC2 works on it",
        },
    ),
    (
        "io-performance",
        "severely-degraded",
        Problem {
            severity: Severity::Degraded,
            reason: "IoPerformanceSeverelyDegraded",
            message: "the volume is far slower than it was provisioned for; EC2 works on it",
        },
    ),
    (
        "io-performance",
        "stalled",
        Problem {
            severity: Severity::Inaccessible,
            reason: "IoPerformanceStalled",
            message: "reads and writes of the volume do not end; EC2 works on it, a restored snapshot is the way around",
        },
    ),
];

/// Returns all known problems of the volume. Missing data is not a problem.
pub(crate) fn problems(volume: &Volume, status: Option<&VolumeStatus>) -> Vec<Problem> {
    let mut found = Vec::new();
    if volume.state == VolumeState::Error {
        found.push(Problem {
            severity: Severity::DataLoss,
            reason: "VolumeFailed",
            message: "EC2 shows the volume as failed, and what it held cannot be read any more; restore it from a snapshot",
        });
    }
    let Some(status) = status else { return found };
    found.extend(
        CHECKS
            .iter()
            .filter(|(check, result, _)| {
                status.details.iter().any(|(name, value)| name == check && value == result)
            })
            .map(|(_, _, problem)| *problem),
    );
    if found.is_empty() {
        // The overall status may cover checks that are unknown here.
        found.extend(match status.health {
            Health::Impaired => Some(Problem {
                severity: Severity::Inaccessible,
                reason: "Impaired",
                message: "EC2 calls the volume impaired; see its status checks (DescribeVolumeStatus)",
            }),
            Health::Warning => Some(Problem {
                severity: Severity::Degraded,
                reason: "Warning",
                message: "EC2 warns about the volume; see its status checks (DescribeVolumeStatus)",
            }),
            Health::Ok | Health::InsufficientData | Health::Other(_) => None,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::Initialization;
    use crate::ec2::example_volume;

    fn status(health: Health, details: &[(&str, &str)]) -> VolumeStatus {
        VolumeStatus {
            volume: example_volume().id,
            health,
            initialization: Initialization::Complete,
            details: details
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn volume_status_and_state_map_to_health_problems() {
        use Severity::{DataLoss, Degraded, Inaccessible};
        type Row = (
            VolumeState,
            Health,
            &'static [(&'static str, &'static str)],
            &'static [(Severity, &'static str)],
        );
        let rows: [Row; 9] = [
            (
                VolumeState::InUse,
                Health::Ok,
                &[("io-enabled", "passed"), ("io-performance", "normal")],
                &[],
            ),
            (VolumeState::Creating, Health::InsufficientData, &[], &[]),
            (
                VolumeState::InUse,
                Health::Impaired,
                &[("io-enabled", "failed"), ("io-performance", "stalled")],
                &[(Inaccessible, "IoDisabled"), (Inaccessible, "IoPerformanceStalled")],
            ),
            (
                VolumeState::InUse,
                Health::Warning,
                &[("io-performance", "degraded")],
                &[(Degraded, "IoPerformanceDegraded")],
            ),
            (
                VolumeState::InUse,
                Health::Warning,
                &[("io-performance", "severely-degraded")],
                &[(Degraded, "IoPerformanceSeverelyDegraded")],
            ),
            (
                VolumeState::InUse,
                Health::Impaired,
                &[("new-check", "failed")],
                &[(Inaccessible, "Impaired")],
            ),
            (VolumeState::InUse, Health::Warning, &[], &[(Degraded, "Warning")]),
            (VolumeState::Error, Health::Impaired, &[], &[(DataLoss, "VolumeFailed")]),
            (VolumeState::InUse, Health::Ok, &[("initialization-state", "initializing")], &[]),
        ];
        for (state, health, details, want) in rows {
            let volume = Volume { state, ..example_volume() };
            let found = problems(&volume, Some(&status(health, details)));
            let found: Vec<_> = found.iter().map(|t| (t.severity, t.reason)).collect();
            assert_eq!(found, want, "{details:?}");
        }
        assert!(problems(&example_volume(), None).is_empty());
    }
}
