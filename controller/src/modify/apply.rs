//! Carries out one change: facts, request, waiting, and tags last.

use std::time::Duration;

use ebs_csi_ec2::{
    Call, Ec2, Ec2Error, LookResult, Modification, ModificationState, ModifyVolume, READ_LAG,
    Volume, WatchedChange,
};
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::VolumeId;
use tokio::time::Instant;

use super::Modifications;
use super::change::{Change, describe_request, has_values_of};
use super::explain::{optimizing, pending, refused};
use super::tagging::Tagging;
use crate::operation::Callers;
use crate::request::topology::Placement;
use crate::volume::iops::IopsLimits;
use crate::volume::is_being_deleted;

/// How long one change continues. A repeated call continues where this one ended.
const CHANGE_TIME: Duration = Duration::from_secs(300);
/// How long the modification is looked for after a lost answer.
const LOST_ANSWER_LOOKS: Duration = Duration::from_secs(5);

impl Modifications {
    /// Applies the change to the volume. Tags are set last, so that a refused change leaves nothing
    /// behind.
    pub(super) async fn apply(
        &self,
        id: &VolumeId,
        change: &Change,
        callers: &Callers,
    ) -> Result<Volume, Failure> {
        let deadline = Instant::now() + CHANGE_TIME;
        let (ec2, call) = (&self.ec2, &Call::until(deadline));
        let (volume, latest) =
            tokio::join!(ec2.look_volume(call, id), ec2.look_modification(call, id));
        let mut volume = existing(ec2, call, id, volume).await?;
        if change.is_empty() {
            return Ok(volume);
        }
        let mut latest = latest.known()?;
        if let Some(running) = latest.take_if(|m| m.state == ModificationState::Modifying) {
            latest = wait_until_effective(ec2, call, id, running, deadline).await.ok();
            volume = existing(ec2, call, id, ec2.look_volume(call, id).await).await?;
        }
        let wanted_iops = change.wanted_iops(&volume)?;
        let limits = match wanted_iops {
            None => IopsLimits::NONE,
            Some(wanted) => {
                let placement = Placement::of_volume(&volume);
                let kind = change.resulting_kind(&volume);
                self.ceilings.limits(call, kind, &placement, wanted).await
            }
        };
        let request = change.request(&volume, wanted_iops, limits);
        let tagging = Tagging::of(change, &volume)?;
        if let (Some(_), Some(latest)) = (&request, &latest)
            && latest.state == ModificationState::Optimizing
        {
            return Err(optimizing(latest, ec2.now()));
        }
        // A change of several calls must not stop halfway for a missing permission that could have
        // been detected before.
        if tagging.calls() > 0 && tagging.calls() + usize::from(request.is_some()) > 1 {
            tagging.dry_run(ec2, call, id).await?;
        }
        let modifies = request.is_some();
        if let Some(request) = request {
            callers.check_any_waits()?;
            tracing::info!("modifying {}", describe_request(id, &request));
            volume = self.send(call, &request, latest.as_ref(), deadline).await?;
        }
        if tagging.has_changes() {
            callers.check_any_waits()?;
            tagging.carry_out(ec2, call, id).await.map_err(|failed| {
                if modifies {
                    failed.context("the volume is modified, its tags are not yet")
                } else {
                    failed
                }
            })?;
        }
        Ok(volume)
    }

    async fn send(
        &self,
        call: &Call,
        request: &ModifyVolume,
        latest: Option<&Modification>,
        deadline: Instant,
    ) -> Result<Volume, Failure> {
        let (ec2, id) = (&self.ec2, &request.volume);
        let accepted = match ec2.modify_volume(call, request).await {
            Ok(accepted) => accepted,
            Err(error) if error.may_have_happened() => {
                find_lost_modification(ec2, call, request, &error).await?
            }
            Err(error) => return Err(refused(&error, latest)),
        };
        wait_until_effective(ec2, call, id, accepted, deadline).await?;
        let shown = ec2
            .watch_volume(call, id, WatchedChange::Visibility, deadline, |look| {
                look.result.present().filter(|volume| has_values_of(volume, request)).cloned()
            })
            .await;
        shown.ok_or_else(|| {
            pending(id, "EC2 calls the modification done and the volume does not show it yet")
        })
    }
}

/// Returns the volume that a look shows. A look that does not show it may be late, so that a second
/// one decides.
async fn existing(
    ec2: &Ec2,
    call: &Call,
    id: &VolumeId,
    mut look: LookResult<Volume>,
) -> Result<Volume, Failure> {
    if matches!(look, LookResult::Absent) {
        tokio::time::sleep(READ_LAG).await;
        look = ec2.look_volume(call, id).await;
    }
    look.known()?
        .filter(|volume| !is_being_deleted(volume))
        .ok_or_else(|| Failure::not_found("volume", id))
}

/// Waits until the new size is effective and the new performance is under way.
async fn wait_until_effective(
    ec2: &Ec2,
    call: &Call,
    id: &VolumeId,
    accepted_modification: Modification,
    deadline: Instant,
) -> Result<Modification, Failure> {
    let outcome_of = |modification: &Modification| match modification.state {
        ModificationState::Optimizing | ModificationState::Completed => {
            Some(Ok(modification.clone()))
        }
        ModificationState::Failed => Some(Err(Failure::new(
            Condition::Local,
            format!(
                "EC2 could not modify volume {id}, which is as it was: {}",
                modification.message.as_deref().unwrap_or("EC2 gives no reason")
            ),
        ))),
        ModificationState::Modifying | ModificationState::Other(_) => None,
    };
    if let Some(end) = outcome_of(&accepted_modification) {
        return end;
    }
    let outcome = ec2
        .watch_modification(call, id, deadline, |look| {
            // A late look shows the modification before this one.
            let is_this = |shown: &&Modification| shown.started >= accepted_modification.started;
            look.result.present().filter(is_this).and_then(outcome_of)
        })
        .await;
    outcome.unwrap_or_else(|| Err(pending(id, "EC2 still modifies it")))
}

/// Finds the modification of a request whose answer was lost: the latest modification has the
/// request's targets if EC2 accepted it.
async fn find_lost_modification(
    ec2: &Ec2,
    call: &Call,
    request: &ModifyVolume,
    error: &Ec2Error,
) -> Result<Modification, Failure> {
    let is_ours = |m: &Modification| {
        request.size.is_none_or(|size| m.target.size == Some(size))
            && request.iops.is_none_or(|iops| m.target.iops == Some(iops))
            && request.throughput.is_none_or(|throughput| m.target.throughput == Some(throughput))
            && request.kind.as_deref().is_none_or(|wanted| {
                m.target.kind.as_deref().is_some_and(|kind| kind.eq_ignore_ascii_case(wanted))
            })
    };
    let found = ec2
        .watch_modification(call, &request.volume, Instant::now() + LOST_ANSWER_LOOKS, |look| {
            look.result.present().filter(|modification| is_ours(modification)).cloned()
        })
        .await;
    found.ok_or_else(|| error.pending())
}
