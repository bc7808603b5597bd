//! Maps EC2's status of a volume to the effect on its users.

use ebs_csi_ec2::{Health, Volume, VolumeState, VolumeStatus};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The severity.
    pub severity: Severity,
    /// One word, for programs; a volume has at most one problem of each word.
    pub reason: &'static str,
    /// The next step, for people.
    pub message: &'static str,
}

const fn problem(severity: Severity, reason: &'static str, message: &'static str) -> Problem {
    Problem { severity, reason, message }
}

/// Results of EC2's checks (EBS user guide, "Amazon EBS volume status checks").
const CHECKS: [(&str, &str, Problem); 4] = [
    (
        "io-enabled",
        "failed",
        problem(
            Severity::Inaccessible,
            "IoDisabled",
            "EC2 stopped reads and writes because the data may be inconsistent; check the file system, then enable I/O (EnableVolumeIO)",
        ),
    ),
    (
        "io-performance",
        "degraded",
        problem(
            Severity::Degraded,
            "IoPerformanceDegraded",
            "the volume is slower than it was provisioned for; EC2 works on it",
        ),
    ),
    (
        "io-performance",
        "severely-degraded",
        problem(
            Severity::Degraded,
            "IoPerformanceSeverelyDegraded",
            "the volume is far slower than it was provisioned for; EC2 works on it",
        ),
    ),
    (
        "io-performance",
        "stalled",
        problem(
            Severity::Inaccessible,
            "IoPerformanceStalled",
            "reads and writes of the volume do not end; EC2 works on it, a restored snapshot is the way around",
        ),
    ),
];

/// Returns all known problems of the volume. Missing data is not a problem.
pub(crate) fn problems(volume: &Volume, status: Option<&VolumeStatus>) -> Vec<Problem> {
    let mut found = Vec::new();
    if volume.state == VolumeState::Error {
        found.push(problem(
            Severity::DataLoss,
            "VolumeFailed",
            "EC2 shows the volume as failed, and what it held cannot be read any more; restore it from a snapshot",
        ));
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
            Health::Impaired => Some(problem(
                Severity::Inaccessible,
                "Impaired",
                "EC2 calls the volume impaired; see its status checks (DescribeVolumeStatus)",
            )),
            Health::Warning => Some(problem(
                Severity::Degraded,
                "Warning",
                "EC2 warns about the volume; see its status checks (DescribeVolumeStatus)",
            )),
            Health::Ok | Health::InsufficientData | Health::Other(_) => None,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::example_volume;
    use ebs_csi_ec2::Initialization;

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
        use Health::{Impaired, InsufficientData, Ok, Warning};
        use Severity::{DataLoss, Degraded, Inaccessible};
        use VolumeState::{Creating, Error, InUse};
        let performance = |result| ("io-performance", result);
        let stalled = vec![("io-enabled", "failed"), performance("stalled")];
        let both = vec![(Inaccessible, "IoDisabled"), (Inaccessible, "IoPerformanceStalled")];
        let slow = (Degraded, "IoPerformanceDegraded");
        let very_slow = (Degraded, "IoPerformanceSeverelyDegraded");
        let rows = [
            (InUse, Ok, vec![("io-enabled", "passed"), performance("normal")], vec![]),
            (Creating, InsufficientData, vec![], vec![]),
            (InUse, Impaired, stalled, both),
            (InUse, Warning, vec![performance("degraded")], vec![slow]),
            (InUse, Warning, vec![performance("severely-degraded")], vec![very_slow]),
            (InUse, Impaired, vec![("new-check", "failed")], vec![(Inaccessible, "Impaired")]),
            (InUse, Warning, vec![], vec![(Degraded, "Warning")]),
            (Error, Impaired, vec![], vec![(DataLoss, "VolumeFailed")]),
            (InUse, Ok, vec![("initialization-state", "initializing")], vec![]),
        ];
        for (state, health, details, want) in rows {
            let volume = Volume { state, ..example_volume() };
            let found = problems(&volume, Some(&status(health, &details)));
            let found: Vec<_> = found.iter().map(|t| (t.severity, t.reason)).collect();
            assert_eq!(found, want, "{details:?}");
        }
        assert!(problems(&example_volume(), None).is_empty());
    }
}
