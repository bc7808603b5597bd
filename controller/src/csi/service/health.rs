//! ControllerGetVolumeHealth and ControllerListVolumeHealth (alpha in the specification), which map
//! EC2's status of a volume to the effect on its users.

use ebs_csi_ec2::{Call, Ec2Error, Health, Page, Volume, VolumeState, VolumeStatus};
use ebs_csi_proto::csi::{self, VolumeHealth, VolumeHealthErrorType as Severity, volume_health};
use ebs_csi_proto::observe::record_field;
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::VolumeId;
use tokio::task::JoinSet;
use tonic::{Request, Response};

use super::volume::find_existing;
use super::{Controller, RpcResult};
use crate::request;
use crate::request::listing::PageRequest;

pub(super) async fn get(
    this: &Controller,
    request: Request<csi::ControllerGetVolumeHealthRequest>,
) -> RpcResult<csi::ControllerGetVolumeHealthResponse> {
    check_offered(this, "ControllerGetVolumeHealth")?;
    let id: VolumeId = request::parse_id("volume_id", &request.get_ref().volume_id)?;
    record_field("volume.id", id.as_str());
    let call = Call::default();
    let (volume, status) =
        tokio::join!(find_existing(this, &id), this.ec2.look_volume_status(&call, &id));
    let volume = volume?;
    let status = status.known().map_err(Failure::from)?;
    Ok(Response::new(csi::ControllerGetVolumeHealthResponse {
        volume_health: Some(to_wire(volume.id.as_str(), &problems(&volume, status.as_ref()))),
    }))
}

/// ControllerListVolumeHealth: the cluster's own volumes that have a problem.
pub(super) async fn list(
    this: &Controller,
    request: Request<csi::ControllerListVolumeHealthRequest>,
) -> RpcResult<csi::ControllerListVolumeHealthResponse> {
    check_offered(this, "ControllerListVolumeHealth")?;
    let wire = request.get_ref();
    let (entries, next_token) = PageRequest::parse(wire.max_entries, &wire.starting_token)?
        .read(|max, token| async move {
            let page = this.ec2.list_impaired_volumes(&Call::default(), max, token).await?;
            Ok(Page { entries: keep_own(this, page.entries).await?, next: page.next })
        })
        .await?;
    Ok(Response::new(csi::ControllerListVolumeHealthResponse { entries, next_token }))
}

/// Keeps the cluster's own volumes. DescribeVolumeStatus returns no tags, so each volume's owner is
/// read from the volume.
async fn keep_own(
    this: &Controller,
    statuses: Vec<VolumeStatus>,
) -> Result<Vec<VolumeHealth>, Ec2Error> {
    let owned = this.tags.of_own_volumes();
    // All at once, so that one call to EC2 answers them all.
    let mut looks = JoinSet::new();
    for status in statuses {
        let ec2 = this.ec2.clone();
        looks.spawn(
            async move { (ec2.look_volume(&Call::default(), &status.volume).await, status) },
        );
    }
    let mut results = looks.join_all().await;
    // A fixed order, so that a page is cut at the same place again.
    results.sort_by(|(_, a), (_, b)| a.volume.cmp(&b.volume));
    let mut entries = Vec::new();
    for (volume, status) in results {
        let Some(volume) = volume.known()?.filter(|volume| owned.are_on(&volume.tags)) else {
            continue;
        };
        let problems = problems(&volume, Some(&status));
        if !problems.is_empty() {
            entries.push(to_wire(volume.id.as_str(), &problems));
        }
    }
    Ok(entries)
}

fn check_offered(this: &Controller, rpc: &str) -> Result<(), Failure> {
    match this.volume_health {
        true => Ok(()),
        false => Err(Failure::new(
            Condition::Unimplemented,
            format!(
                "{rpc} is alpha in the CSI specification and off; --enable-volume-health offers it"
            ),
        )),
    }
}

fn to_wire(volume: &str, problems: &[Problem]) -> VolumeHealth {
    let entry = |problem: &Problem| volume_health::VolumeHealthEntry {
        status: problem.severity as i32,
        reason: problem.reason.to_owned(),
        message: problem.message.to_owned(),
    };
    VolumeHealth {
        volume_id: volume.to_owned(),
        health_statuses: problems.iter().map(entry).collect(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Problem {
    severity: Severity,
    /// One word, for programs; a volume has at most one problem of each word.
    reason: &'static str,
    /// The next step, for people.
    message: &'static str,
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
fn problems(volume: &Volume, status: Option<&VolumeStatus>) -> Vec<Problem> {
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
