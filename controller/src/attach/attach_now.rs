//! One attach: the looks, requests and waits that its state machine ([`super::attaching`]) asks
//! for, and the choice of the device name.

use std::time::Duration;

use ebs_csi_ec2::{
    Action, AttachmentState, Call, Ec2, Ec2ErrorKind, Initialization, Instance, InstanceState,
    LookResult, READ_LAG, Volume, WatchedChange,
};
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{InstanceId, VolumeId};
use tokio::time::Instant;

use super::attaching::{AttachStep, Attaching, STUCK_AFTER};
use super::detach_decision::DetachDecision;
use super::detaching::Detaching;
use super::{Attached, Attachments, OPERATION_TIME, own_volume};
use crate::attach::device_name::{Mapped, Reservation};
use crate::operation::Cancellation;
use crate::request::{Pair, Publish};

/// The most device names that one attach tries when EC2 says "already in use".
const MAX_NAMES_TRIED: u32 = 8;

impl Attachments {
    /// Attaches the volume, unless `cancellation` says that nobody wants it any more.
    pub(super) async fn attach_now(
        &self,
        request: &Publish,
        cancellation: &Cancellation,
    ) -> Result<Attached, Failure> {
        let began = Instant::now();
        let deadline = began + OPERATION_TIME;
        let ec2 = &self.ec2;
        let call = Call::until(deadline).while_wanted(cancellation.wanted());
        let pair = &request.pair;
        let Pair { volume, node } = pair;
        self.recent.note_attach_begins(pair);
        let is_attached = |look: &LookResult<Volume>| {
            let attachment = look.present().and_then(|volume| volume.attachment(node));
            attachment.is_some_and(|attachment| attachment.state == AttachmentState::Attached)
        };
        let queued = ec2.wait_in_queue(&call, Action::AttachVolume, volume, is_attached);
        let call = queued.await?;
        cancellation.check_not_superseded()?;
        let (instance, look) =
            tokio::join!(ec2.look_instance(&call, node), ec2.look_volume(&call, volume));
        let shown = check_not_terminated(node, instance.known()?)?;
        if let Some(instance) = &shown {
            own_volume::refuse_publish(instance, volume)?;
        }
        // A read that does not show an instance proves nothing: only EC2's answer to the request
        // tells whether the instance exists.
        let is_hidden = shown.is_none();
        let mut instance = Some(shown);
        let is_shared = request.options.capability.needs_multi_attach();
        let mut machine = Attaching::new(pair.clone(), is_shared);
        let mut step = machine.observe(&self.recent.correct(&look), Instant::now());
        // Kept until the attachment is seen, so that no other attach takes the name meanwhile.
        let mut reservation: Option<Reservation> = None;
        let published = self.publish_options.published(pair);
        let mut is_freed = false;
        let mut is_confirmed = false;
        let attached = loop {
            cancellation.check_not_superseded()?;
            match step {
                AttachStep::Done(_) if is_hidden && machine.has_sent_nothing() => {
                    return Err(Failure::pending(format!(
                        "volume {volume} is attached to node {node}, which EC2 does not show: whether it was launched with it is not known"
                    )));
                }
                // The look may be from before a detach by another process, unless this process
                // published the attachment: another process detaches only what that process is
                // asked to, long after this process was asked last.
                AttachStep::Done(attached)
                    if machine.has_sent_nothing()
                        && !is_confirmed
                        && (attached.since.is_none()
                            || published.map(|(at, _)| at) != attached.since) =>
                {
                    tokio::time::sleep_until(began + READ_LAG).await;
                    is_confirmed = true;
                }
                AttachStep::Done(attached) => break *attached,
                AttachStep::Refuse(failure) => {
                    let elsewhere = failure.condition() == Condition::PublishedElsewhere;
                    is_freed = elsewhere
                        && !is_freed
                        && self.detach_left_behind(&call, pair, cancellation).await?;
                    if !is_freed {
                        return Err(failure);
                    }
                }
                // A process whose caller no longer waits must not act against the process that the
                // caller asks now.
                AttachStep::Stuck => {
                    cancellation.check_wanted()?;
                    let stuck = Detaching::new(pair.clone(), began, published);
                    return Err(self
                        .detach_stuck(&call, pair, stuck, cancellation, deadline)
                        .await);
                }
                AttachStep::Attach => {
                    cancellation.check_wanted()?;
                    let instance = match instance.take() {
                        Some(instance) => instance,
                        None => check_not_terminated(
                            node,
                            ec2.look_instance(&call, node).await.known()?,
                        )?,
                    };
                    let is_mapped = instance.as_ref().is_some_and(|i| is_mapped(i, volume));
                    if machine.has_sent_nothing() && is_mapped {
                        // The instance shows the attachment already, the volume does not yet.
                        machine.note_sent(Instant::now());
                    } else {
                        reservation = self
                            .send_attach(&call, &request.pair, instance.as_ref(), &mut machine)
                            .await?;
                    }
                }
                AttachStep::Wait => {}
            }
            let next = ec2
                .watch_volume(&call, volume, WatchedChange::Attachment, deadline, |look| {
                    if cancellation.is_superseded() {
                        return Some(AttachStep::Wait);
                    }
                    match machine.observe(&self.recent.correct(&look.result), Instant::now()) {
                        AttachStep::Wait => None,
                        step => Some(step),
                    }
                })
                .await;
            step = next.ok_or_else(|| machine.overdue_failure())?;
        };
        drop(reservation);
        self.publish_options.check_or_remember(pair, &request.options, attached.since)?;
        if request.wait_until_initialized {
            wait_until_initialized(ec2, &call, volume, deadline, cancellation).await?;
        }
        Ok(attached)
    }

    /// Sends AttachVolume with free device names until EC2 accepts one.
    async fn send_attach(
        &self,
        call: &Call,
        pair: &Pair,
        instance: Option<&Instance>,
        machine: &mut Attaching,
    ) -> Result<Option<Reservation>, Failure> {
        let Pair { volume, node } = pair;
        let cards = match instance {
            Some(instance) => self.instance_types.cards(&self.ec2, call, &instance.kind).await,
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
        for _ in 0..MAX_NAMES_TRIED {
            let mut reservation =
                self.names.reserve(node, volume, &mapped, cards).ok_or_else(|| {
                    Failure::new(
                        Condition::AttachLimit,
                        format!("all device names of node {node} are taken; use another node"),
                    )
                })?;
            reservation.note_sent();
            let place = reservation.name_and_card();
            let answer =
                self.ec2.attach_volume(call, volume, node, &place.device, place.card).await;
            machine.note_sent(Instant::now());
            let error = match answer {
                Ok(attachment) => {
                    machine.note_accepted(attachment.attached);
                    self.names.note_accepted(node, &place.device);
                    return Ok(Some(reservation));
                }
                Err(error) => error,
            };
            match error.kind {
                Ec2ErrorKind::DeviceInUse => {
                    tracing::info!(node.id = node.as_str(), device = %place.device, "EC2 says that the name is in use, though it does not show it");
                    self.names.note_refused(node, &place.device);
                }
                // An attach of this process whose answer was lost, or another caller's: the volume
                // shows which.
                Ec2ErrorKind::VolumeInUse => {
                    machine.note_unclear(Instant::now());
                    return Ok(Some(reservation));
                }
                _ if error.may_have_happened() => {
                    machine.note_unclear(Instant::now());
                    tracing::warn!(%error, "whether the attach was accepted is seen at the volume");
                    return Ok(Some(reservation));
                }
                // A late look shows `available` before `creating` has ended, or `creating` after it
                // has.
                Ec2ErrorKind::IncorrectState if machine.may_wait_for_state(&error) => {
                    return Ok(Some(reservation));
                }
                Ec2ErrorKind::VolumeNotFound => return Err(Failure::not_found("volume", volume)),
                Ec2ErrorKind::InstanceNotFound => return Err(Failure::not_found("node", node)),
                _ => return Err(error.into()),
            }
        }
        Err(Failure::pending(format!(
            "EC2 refused {MAX_NAMES_TRIED} device names of node {node} as in use; the next try uses others"
        )))
    }

    /// Detaches a volume that stays in `attaching`, if it may leave.
    async fn detach_stuck(
        &self,
        call: &Call,
        pair: &Pair,
        mut machine: Detaching,
        cancellation: &Cancellation,
        deadline: Instant,
    ) -> Failure {
        let Pair { volume, node } = pair;
        let decision = self.decide_detach(call, pair, &mut machine, cancellation, deadline).await;
        let outcome = match decision {
            Ok(DetachDecision::Send(force, looked_at)) => {
                match self.send_detach(call, pair, force, looked_at).await {
                    Ok(()) => "it is detached, so that the next try begins afresh".to_owned(),
                    Err(error) => format!("detaching it failed too: {error}"),
                }
            }
            Ok(DetachDecision::InProgress | DetachDecision::NotAttached) => {
                "it is on its way off, so that the next try begins afresh".to_owned()
            }
            Err(refused) => format!("it is not detached: {refused}"),
        };
        Failure::pending(format!(
            "volume {volume} was attaching to node {node} for {} s without an end; {outcome}",
            STUCK_AFTER.as_secs()
        ))
    }
}

/// Returns the instance, or an error when EC2 shows that nothing can be attached to it any more.
fn check_not_terminated(
    node: &InstanceId,
    instance: Option<Instance>,
) -> Result<Option<Instance>, Failure> {
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

/// EC2 renews its report about initialization every few minutes; a small volume is done in seconds.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Waits until all data of a restored volume is on it. The wait holds no lock: a detach supersedes
/// it at once.
async fn wait_until_initialized(
    ec2: &Ec2,
    call: &Call,
    volume: &VolumeId,
    deadline: Instant,
    cancellation: &Cancellation,
) -> Result<(), Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        let status = match ec2.look_volume_status(call, volume).await.known() {
            Ok(status) => status,
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "how much of a volume's data has come is not known; it is asked again");
                None
            }
            Err(error) => return Err(error.into()),
        };
        let progress_text = match status.map(|status| status.initialization) {
            Some(Initialization::Complete) => return Ok(()),
            Some(Initialization::Running { progress, .. }) => progress.map(|p| format!("{p} %")),
            // EC2's status of a volume lags behind the volume.
            None => None,
        };
        if Instant::now() + pause >= deadline {
            return Err(Failure::pending(format!(
                "volume {volume} is attached and {} of its data has come from its source; blockAttachUntilInitialized waits for the rest",
                progress_text.as_deref().unwrap_or("a part")
            )));
        }
        if tokio::time::timeout(pause, cancellation.superseded()).await.is_ok() {
            return Err(Cancellation::superseded_failure());
        }
        pause = (pause * 2).min(MAX_PAUSE);
    }
}
