//! One attach: the looks, requests and waits that its state machine ([`super::attaching`]) asks
//! for, and the choice of the device name.

use std::ops::ControlFlow;

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{InstanceId, VolumeId};
use tokio::time::Instant;

use super::attaching::{AttachStep, Attaching, STUCK_AFTER};
use super::detach_decision::DetachDecision;
use super::initialized::wait_until_initialized;
use super::recent_changes::READ_LAG;
use super::{Attached, Attachments, Key, OPERATION_TIME, own_volume};
use crate::attach::device_name::{Mapped, NoNameLeft, Reservation};
use crate::ec2::csi_failure::failure;
use crate::ec2::{
    Action, AttachmentState, Ec2, Ec2ErrorKind, Instance, InstanceState, LookResult, Volume,
    WatchedChange,
};
use crate::operation::Mandate;
use crate::request::{Pair, Publish};

/// The most device names that one attach tries when EC2 says "already in use".
const NAMES_TRIED: u32 = 8;

impl Attachments {
    /// Attaches the volume under this mandate.
    pub(super) async fn attach_now(
        &self,
        request: &Publish,
        mandate: &Mandate,
    ) -> Result<Attached, Failure> {
        let began = Instant::now();
        let deadline = began + OPERATION_TIME;
        let ec2 = self.ec2.with_deadline(deadline).while_wanted(mandate.wanted());
        let Pair { volume, node } = &request.pair;
        self.recent.attach_begins(volume, node);
        let is_attached = |seen: &LookResult<Volume>| {
            let attachment = seen.present().and_then(|volume| volume.attachment(node));
            attachment.is_some_and(|attachment| attachment.state == AttachmentState::Attached)
        };
        let line = ec2.wait_in_queue(Action::AttachVolume, volume, is_attached);
        let ec2 = line.await.map_err(|e| failure(&e))?;
        if mandate.is_superseded() {
            return Err(Mandate::superseded_failure());
        }
        let (instance, seen) = tokio::join!(ec2.look_instance(node), ec2.look_volume(volume));
        let shown = alive(node, instance.known().map_err(|e| failure(&e))?)?;
        if let Some(instance) = &shown {
            own_volume::refuse_publish(instance, volume)?;
        }
        // A read that does not show an instance proves nothing: only EC2's answer to the request
        // tells whether the instance exists.
        let is_hidden = shown.is_none();
        let mut instance = Some(shown);
        let shared = request.options.capability.needs_multi_attach();
        let mut machine = Attaching::new(volume.clone(), node.clone(), shared);
        let mut step = machine.see(&self.recent.corrected(&seen), Instant::now());
        // Kept until the attachment is seen, so that no other attach takes the name meanwhile.
        let mut kept: Option<Reservation> = None;
        let mut freed = false;
        let mut is_confirmed = false;
        let attached = loop {
            if mandate.is_superseded() {
                return Err(Mandate::superseded_failure());
            }
            match step {
                AttachStep::Done(_) if is_hidden && machine.is_first() => {
                    return Err(Failure::new(
                        Condition::OperationPending,
                        format!(
                            "volume {volume} is attached to node {node}, which EC2 does not show: whether it was launched with it is not known"
                        ),
                    ));
                }
                // The look may be from before a detach by another process.
                AttachStep::Done(_) if machine.is_first() && !is_confirmed => {
                    tokio::time::sleep_until(began + READ_LAG).await;
                    is_confirmed = true;
                }
                AttachStep::Done(attached) => break *attached,
                AttachStep::Refuse(failure) => {
                    let elsewhere = failure.condition() == Condition::PublishedElsewhere;
                    freed = elsewhere
                        && !freed
                        && self.free_left_behind(&ec2, volume, node, mandate).await?;
                    if !freed {
                        return Err(failure);
                    }
                }
                // A process whose caller has left must not act against the process that the caller
                // asks now.
                AttachStep::Stuck => {
                    mandate.check_wanted()?;
                    return Err(self.give_up_stuck(&ec2, &request.pair, mandate, deadline).await);
                }
                AttachStep::Attach => {
                    mandate.check_wanted()?;
                    let instance = match instance.take() {
                        Some(instance) => instance,
                        None => alive(
                            node,
                            ec2.look_instance(node).await.known().map_err(|e| failure(&e))?,
                        )?,
                    };
                    let is_mapped = instance.as_ref().is_some_and(|i| is_mapped(i, volume));
                    if machine.is_first() && is_mapped {
                        // The instance shows the attachment already, the volume does not yet.
                        machine.sent(Instant::now());
                    } else {
                        kept = self
                            .send_attach(&ec2, &request.pair, instance.as_ref(), &mut machine)
                            .await?;
                    }
                }
                AttachStep::Wait => {}
            }
            let seen = ec2
                .watch_volume(volume, WatchedChange::Attachment, deadline, |seen| {
                    if mandate.is_superseded() {
                        return ControlFlow::Break(AttachStep::Wait);
                    }
                    match machine.see(&self.recent.corrected(seen), Instant::now()) {
                        AttachStep::Wait => ControlFlow::Continue(()),
                        step => ControlFlow::Break(step),
                    }
                })
                .await;
            step = seen.ok_or_else(|| machine.overdue())?;
        };
        drop(kept);
        let key = Key(volume.clone(), node.clone());
        self.publish_options.agree(&key, &request.options, attached.since)?;
        if request.wait_until_initialized {
            wait_until_initialized(&ec2, volume, deadline, mandate).await?;
        }
        Ok(attached)
    }

    /// Sends AttachVolume with free device names until EC2 accepts one.
    async fn send_attach(
        &self,
        ec2: &Ec2,
        Pair { volume, node }: &Pair,
        instance: Option<&Instance>,
        machine: &mut Attaching,
    ) -> Result<Option<Reservation>, Failure> {
        let cards = match instance {
            Some(instance) => self.cards.of(ec2, &instance.kind).await,
            None => 1,
        };
        let devices = instance.iter().flat_map(|instance| &instance.devices);
        let mapped: Vec<_> = devices
            .map(|device| Mapped {
                device: device.device.clone(),
                volume: device.volume.clone(),
                card: device.card,
            })
            .collect();
        for _ in 0..NAMES_TRIED {
            let mut kept =
                self.names.reserve(node, volume, &mapped, cards).map_err(|NoNameLeft| {
                    Failure::new(
                        Condition::AttachLimit,
                        format!("all device names of node {node} are taken; use another node"),
                    )
                })?;
            kept.told();
            let place = kept.place();
            let answer = ec2.attach_volume(volume, node, &place.device, place.card).await;
            self.recent.attach_sent(volume, node);
            machine.sent(Instant::now());
            let error = match answer {
                Ok(attachment) => {
                    machine.accepted(attachment.attached);
                    self.names.accepted(node, &place.device);
                    return Ok(Some(kept));
                }
                Err(error) => error,
            };
            match error.kind {
                Ec2ErrorKind::DeviceInUse => {
                    tracing::info!(node.id = node.as_str(), device = %place.device, "EC2 says that the name is in use, though it does not show it");
                    self.names.refused(node, &place.device);
                }
                // An attach of this process whose answer was lost, or another caller's: the volume
                // shows which.
                Ec2ErrorKind::VolumeInUse => {
                    machine.unclear(Instant::now());
                    return Ok(Some(kept));
                }
                _ if error.may_have_happened() => {
                    machine.unclear(Instant::now());
                    tracing::warn!(%error, "whether the attach was accepted is seen at the volume");
                    return Ok(Some(kept));
                }
                // A late look shows `available` before `creating` has ended, or `creating` after it
                // has.
                Ec2ErrorKind::IncorrectState if machine.may_wait_for_state(&error) => {
                    return Ok(Some(kept));
                }
                Ec2ErrorKind::VolumeNotFound => return Err(Failure::not_found("volume", volume)),
                Ec2ErrorKind::InstanceNotFound => return Err(Failure::not_found("node", node)),
                _ => return Err(failure(&error)),
            }
        }
        Err(Failure::new(
            Condition::OperationPending,
            format!(
                "EC2 refused {NAMES_TRIED} device names of node {node} as in use; the next try uses others"
            ),
        ))
    }

    /// Detaches a volume that stays in `attaching`, if it may leave.
    async fn give_up_stuck(
        &self,
        ec2: &Ec2,
        pair: &Pair,
        mandate: &Mandate,
        deadline: Instant,
    ) -> Failure {
        let Pair { volume, node } = pair;
        let decision = self.decide_detach(ec2, pair, mandate, deadline).await;
        let decided = Instant::now();
        let outcome = match decision {
            Ok(DetachDecision::Send(force)) => {
                match ec2.detach_volume(volume, node, force, decided).await {
                    Ok(_) => "it is detached, so that the next try begins afresh".to_owned(),
                    Err(error) => format!("detaching it failed too: {error}"),
                }
            }
            Ok(DetachDecision::InProgress | DetachDecision::NotAttached) => {
                "it is on its way off, so that the next try begins afresh".to_owned()
            }
            Err(refused) => format!("it is not detached: {refused}"),
        };
        Failure::new(
            Condition::OperationPending,
            format!(
                "volume {volume} was attaching to node {node} for {} s without an end; {outcome}",
                STUCK_AFTER.as_secs()
            ),
        )
    }
}

/// Returns the instance, or an error when EC2 shows that nothing can be attached to it any more.
fn alive(node: &InstanceId, instance: Option<Instance>) -> Result<Option<Instance>, Failure> {
    let state = instance.as_ref().map(|instance| &instance.state);
    match state {
        Some(InstanceState::Terminated | InstanceState::ShuttingDown) => {
            Err(Failure::not_found("node", node))
        }
        _ => Ok(instance),
    }
}

fn is_mapped(instance: &Instance, volume: &VolumeId) -> bool {
    instance.devices.iter().any(|device| {
        device.volume.as_ref() == Some(volume)
            && matches!(device.state, AttachmentState::Attaching | AttachmentState::Attached)
    })
}
