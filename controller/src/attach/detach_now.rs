//! One detach: the looks, decisions and requests that its state machine ([`super::detaching`]) asks
//! for.

use std::ops::ControlFlow;

use ebs_csi_proto::Failure;
use tokio::time::Instant;

use super::detach_decision::DetachDecision;
use super::detaching::{DetachStep, Detaching};
use super::pending::PendingDetach;
use super::recent_changes::READ_LAG;
use super::{Attachments, Key, OPERATION_TIME};
use crate::ec2::csi_failure::failure;
use crate::ec2::{Action, Ec2, Ec2ErrorKind, LookResult, Volume, WatchedChange};
use crate::operation::Mandate;
use crate::request::Pair;
use crate::safe_detach::Mode;

impl Attachments {
    /// Detaches the volume under this mandate.
    pub(super) async fn detach_now(&self, pair: &Pair, mandate: &Mandate) -> Result<(), Failure> {
        let deadline = Instant::now() + OPERATION_TIME;
        let ec2 = self.ec2.with_deadline(deadline).while_wanted(mandate.wanted());
        let Pair { volume, node } = pair;
        if self.was_detached(&ec2, pair).await {
            return Ok(());
        }
        let mut machine = Detaching::new(volume.clone(), node.clone());
        let is_detached = |seen: &LookResult<Volume>| match seen {
            LookResult::Present(volume) => volume.attachment(node).is_none(),
            LookResult::Absent => true,
            LookResult::Unknown(_) => false,
        };
        let line = ec2.wait_in_queue(Action::DetachVolume, volume, is_detached);
        let ec2 = line.await.map_err(|e| failure(&e))?;
        if mandate.is_superseded() {
            return Err(Mandate::superseded_failure());
        }
        let mut pending = PendingDetach::new(pair, self.tally.metrics());
        // With safe detach, `decide_detach` gathers the facts before any DetachVolume.
        let since = |seen: &LookResult<Volume>| Some(seen.present()?.attachment(node)?.attached);
        let mut attached = None;
        let mut step = if self.safe_detach == Mode::Off {
            let seen = ec2.look_volume(volume).await;
            attached = since(&seen).flatten();
            machine.see(&seen, Instant::now())
        } else {
            DetachStep::Detach
        };
        loop {
            if mandate.is_superseded() {
                return Err(Mandate::superseded_failure());
            }
            match step {
                DetachStep::Gone => {
                    self.publish_options.forget(&Key(volume.clone(), node.clone()));
                    if attached.is_some() {
                        self.recent.ended(volume, node, attached);
                    }
                    if machine.has_asked() {
                        self.recent.detached(volume, node);
                    }
                    return Ok(());
                }
                DetachStep::Refuse(failure) => return Err(failure),
                DetachStep::Detach => {
                    mandate.check_wanted()?;
                    let force = match self.decide_detach(&ec2, pair, mandate, deadline).await? {
                        DetachDecision::NotAttached => {
                            step = DetachStep::Gone;
                            continue;
                        }
                        DetachDecision::InProgress => {
                            step = DetachStep::Wait;
                            continue;
                        }
                        DetachDecision::Send(force) => force,
                    };
                    let decided = Instant::now();
                    // The decision may have taken long.
                    if mandate.is_superseded() {
                        return Err(Mandate::superseded_failure());
                    }
                    mandate.check_wanted()?;
                    let answer = ec2.detach_volume(volume, node, force, decided).await;
                    if let Err(error) = &answer
                        && error.kind == Ec2ErrorKind::Stale
                    {
                        step = DetachStep::Detach;
                        continue;
                    }
                    machine.sent(Instant::now());
                    match answer {
                        Ok(_) => {}
                        Err(error) => match error.kind {
                            Ec2ErrorKind::VolumeNotFound | Ec2ErrorKind::MalformedId => {
                                step = DetachStep::Gone;
                                continue;
                            }
                            Ec2ErrorKind::AttachmentNotFound
                            | Ec2ErrorKind::IncorrectState
                            | Ec2ErrorKind::InstanceNotFound => machine.denied(&error),
                            _ if error.may_have_happened() => {
                                tracing::warn!(%error, "whether the detach was accepted is seen at the volume");
                            }
                            _ => return Err(failure(&error)),
                        },
                    }
                }
                DetachStep::Wait => {}
            }
            let seen = ec2
                .watch_volume(volume, WatchedChange::Detachment, deadline, |seen| {
                    if mandate.is_superseded() {
                        return ControlFlow::Break(DetachStep::Wait);
                    }
                    pending.see(seen);
                    attached = since(seen).unwrap_or(attached);
                    if self.recent.may_be_late(seen, volume, node) {
                        return ControlFlow::Continue(());
                    }
                    match machine.see(seen, Instant::now()) {
                        // An override order may have come since.
                        DetachStep::Wait
                            if machine.is_leaving()
                                && self.cluster_evidence.overrides.is_unused(pair) =>
                        {
                            ControlFlow::Break(DetachStep::Detach)
                        }
                        DetachStep::Wait => ControlFlow::Continue(()),
                        step => ControlFlow::Break(step),
                    }
                })
                .await;
            step = seen.ok_or_else(|| {
                pending.overdue();
                machine.overdue()
            })?;
        }
    }
    /// Returns whether an earlier operation of this process detached the volume and nobody has
    /// attached the volume again. A detach whose caller left succeeds for nobody; without this, the
    /// repeated call would need another DetachVolume as its proof.
    ///
    /// The look is made when reads show every attach from before this call.
    async fn was_detached(&self, ec2: &Ec2, pair: &Pair) -> bool {
        let Pair { volume, node } = pair;
        if self.safe_detach != Mode::Off || !self.recent.was_detached(volume, node) {
            return false;
        }
        tokio::time::sleep(READ_LAG).await;
        let seen = ec2.look_volume(volume).await;
        seen.present().is_some_and(|seen| seen.attachment(node).is_none())
    }
}
