//! ControllerGetVolumeHealth and ControllerListVolumeHealth (alpha in the specification).

use ebs_csi_ec2::{Call, Ec2Error, Page, VolumeStatus};
use ebs_csi_proto::csi::{self, VolumeHealth, VolumeHealthErrorType, volume_health};
use ebs_csi_proto::observe::record_field;
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::VolumeId;
use tokio::task::JoinSet;
use tonic::{Request, Response};

use super::volume::find_existing;
use super::{Controller, RpcResult};
use crate::csi::volume_health::{Problem, Severity, problems};
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
        status: match problem.severity {
            Severity::Degraded => VolumeHealthErrorType::Degraded,
            Severity::Inaccessible => VolumeHealthErrorType::Inaccessible,
            Severity::DataLoss => VolumeHealthErrorType::DataLoss,
        } as i32,
        reason: problem.reason.to_owned(),
        message: problem.message.to_owned(),
    };
    VolumeHealth {
        volume_id: volume.to_owned(),
        health_statuses: problems.iter().map(entry).collect(),
    }
}
