//! Attaching a volume to an instance and detaching it, as one operation per pair: what was asked for last wins.

mod attaching;
mod cards;
mod detaching;
mod initialized;
mod lately;
mod leave;
mod left_behind;
mod manner;
mod pending;
pub(crate) mod root;

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{InstanceId, VolumeId};
use tokio::time::Instant;

use crate::device_name::{DeviceNames, Mapped, NoNameLeft, Reservation};
use crate::ec2::{
    AttachmentState, Ec2, Ec2ErrorKind, Force, Instance, InstanceState, Seen, Timestamp, Volume,
    Watched,
};
use crate::ec2_failure::failure;
use crate::operations::{Conflict, Mandate, Operations};
use crate::request::{Pair, Publish};
use crate::safe_detach::{Mode, Testimony};
use crate::tally::Tally;

use attaching::{Attaching, Step};
use cards::Cards;
use detaching::Detaching;
use initialized::wait_until_initialized;
use lately::Lately;
use leave::Leave;
pub use manner::Manner;
use manner::Manners;
use pending::PendingDetach;

/// How long one operation goes on. It is as long as external-attacher waits; a repeated call begins where this one ended.
const OPERATION_TIME: Duration = Duration::from_secs(360);
/// Names that one attach tries when EC2 says "already in use".
const NAMES_TRIED: u32 = 8;
/// A volume at its instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The device name as EC2 has it.
    pub device: String,
    /// When the attach was accepted.
    pub since: Option<Timestamp>,
    /// The volume as it was seen then.
    pub volume: Volume,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Intent {
    Attach(Publish),
    Detach,
}

/// Key of the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key(VolumeId, InstanceId);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} at node {}", self.0, self.1)
    }
}

/// Attaches and detaches.
#[derive(Clone, Debug)]
pub struct Attachments {
    ec2: Ec2,
    names: DeviceNames,
    cards: Cards,
    manners: Manners,
    lately: Lately,
    tally: Tally,
    safe_detach: Mode,
    testimony: Testimony,
    running: Operations<Key, Intent, Option<Attached>>,
}

impl Attachments {
    /// With nothing under way.
    pub(crate) fn new(ec2: Ec2, safe_detach: Mode, testimony: Testimony, tally: Tally) -> Self {
        Self {
            ec2,
            names: DeviceNames::default(),
            cards: Cards::default(),
            manners: Manners::default(),
            lately: Lately::default(),
            running: Operations::new(Conflict::Supersede, tally.clone()),
            tally,
            safe_detach,
            testimony,
        }
    }

    /// Attaches the volume, and waits until EC2 shows it attached.
    ///
    /// # Errors
    /// [`Condition::PublishedElsewhere`], naming the holder; [`Condition::Incompatible`] when it is published here in another manner;
    /// [`Condition::AttachLimit`]; [`Condition::NotFound`]; and what EC2 says.
    pub async fn attach(
        &self,
        request: Publish,
        patience: Option<Duration>,
    ) -> Result<Attached, Failure> {
        let this = self.clone();
        let key = Key(request.pair.volume.clone(), request.pair.node.clone());
        let attached = self
            .running
            .run(
                key,
                Intent::Attach(request.clone()),
                patience,
                move |mandate| async move { this.attach_now(&request, &mandate).await.map(Some) },
            )
            .await?;
        attached.ok_or_else(|| Failure::new(Condition::Bug, "an attach ended as a detach"))
    }

    /// Detaches the volume, and waits until EC2 shows no attachment to the instance.
    ///
    /// # Errors
    /// [`Condition::InUse`] when it may not leave; [`Condition::DeadlinePassed`] while the guest still holds the device; and what EC2 says.
    pub async fn detach(&self, pair: Pair, patience: Option<Duration>) -> Result<(), Failure> {
        let this = self.clone();
        let key = Key(pair.volume.clone(), pair.node.clone());
        self.running
            .run(key, Intent::Detach, patience, move |mandate| async move {
                this.detach_now(&pair, &mandate).await.map(|()| None)
            })
            .await
            .map(drop)
    }

    async fn attach_now(&self, request: &Publish, mandate: &Mandate) -> Result<Attached, Failure> {
        let deadline = Instant::now() + OPERATION_TIME;
        let ec2 = self.ec2.by(deadline).while_wanted(mandate.wanted());
        let Pair { volume, node } = &request.pair;
        let (instance, seen) = tokio::join!(ec2.look_instance(node), ec2.look_volume(volume));
        let instance = alive(node, instance.known().map_err(|e| failure(&e))?)?;
        root::refuse_publish(&instance, volume)?;
        let mut instance = Some(instance);
        let shared = request.manner.capability.needs_multi_attach();
        let mut machine = Attaching::new(volume.clone(), node.clone(), shared);
        let mut step = machine.see(&self.lately.corrected(&seen), Instant::now());
        // Kept until the attachment is seen: nobody else may take the name meanwhile.
        let mut kept: Option<Reservation> = None;
        let mut freed = false;
        let attached = loop {
            if mandate.is_superseded() {
                return Err(Mandate::superseded_failure());
            }
            match step {
                Step::Done(attached) => break *attached,
                Step::Refuse(failure) => {
                    let elsewhere = failure.condition() == Condition::PublishedElsewhere;
                    freed = elsewhere
                        && !freed
                        && self.free_left_behind(&ec2, volume, node, mandate).await?;
                    if !freed {
                        return Err(failure);
                    }
                }
                // A process that the caller has left must not act against the one that it asks now.
                Step::Stuck => {
                    mandate.check_wanted()?;
                    return Err(self.give_up_stuck(&ec2, volume, node).await);
                }
                Step::Attach => {
                    mandate.check_wanted()?;
                    let instance = match instance.take() {
                        Some(instance) => instance,
                        None => alive(
                            node,
                            ec2.look_instance(node)
                                .await
                                .known()
                                .map_err(|e| failure(&e))?,
                        )?,
                    };
                    if machine.is_first() && is_mapped(&instance, volume) {
                        // The instance shows it already, the volume not yet.
                        machine.sent(Instant::now());
                    } else {
                        kept = self
                            .send_attach(&ec2, volume, &instance, &mut machine)
                            .await?;
                    }
                }
                Step::Wait => {}
            }
            let seen = ec2
                .watch_volume(volume, Watched::Attachment, deadline, |seen| {
                    if mandate.is_superseded() {
                        return ControlFlow::Break(Step::Wait);
                    }
                    match machine.see(&self.lately.corrected(seen), Instant::now()) {
                        Step::Wait => ControlFlow::Continue(()),
                        step => ControlFlow::Break(step),
                    }
                })
                .await;
            step = seen.ok_or_else(|| machine.overdue())?;
        };
        drop(kept);
        let key = Key(volume.clone(), node.clone());
        self.manners.agree(&key, &request.manner, attached.since)?;
        if request.wait_until_initialized {
            wait_until_initialized(&ec2, volume, deadline, mandate).await?;
        }
        Ok(attached)
    }

    /// Sends AttachVolume under names that are free, until EC2 takes one.
    async fn send_attach(
        &self,
        ec2: &Ec2,
        volume: &VolumeId,
        instance: &Instance,
        machine: &mut Attaching,
    ) -> Result<Option<Reservation>, Failure> {
        let node = &instance.id;
        let cards = self.cards.of(ec2, &instance.kind).await;
        let mapped: Vec<_> = instance
            .devices
            .iter()
            .map(|device| Mapped {
                device: device.device.clone(),
                volume: device.volume.clone(),
                card: device.card,
            })
            .collect();
        for _ in 0..NAMES_TRIED {
            let kept = self
                .names
                .reserve(node, volume, &mapped, cards)
                .map_err(|NoNameLeft| {
                    Failure::new(
                        Condition::AttachLimit,
                        format!("all device names of node {node} are taken; use another node"),
                    )
                })?;
            let place = kept.place();
            let answer = ec2
                .attach_volume(volume, node, &place.device, place.card)
                .await;
            self.lately.attach_sent(volume, node);
            machine.sent(Instant::now());
            let error = match answer {
                Ok(_) => {
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
                // Ours whose answer was lost, or somebody else's: the volume says.
                Ec2ErrorKind::VolumeInUse => return Ok(Some(kept)),
                _ if error.may_have_happened() => {
                    tracing::warn!(%error, "whether the attach was accepted is seen at the volume");
                    return Ok(Some(kept));
                }
                // A look that is late shows `available` before `creating` has ended, and the other way round.
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

    async fn give_up_stuck(&self, ec2: &Ec2, volume: &VolumeId, node: &InstanceId) -> Failure {
        let outcome = match ec2.detach_volume(volume, node, Force::No).await {
            Ok(_) => "it is detached, so that the next try begins afresh".to_owned(),
            Err(error) => format!("detaching it failed too: {error}"),
        };
        Failure::new(
            Condition::OperationPending,
            format!(
                "volume {volume} was attaching to node {node} for {} s without an end; {outcome}",
                attaching::STUCK_AFTER.as_secs()
            ),
        )
    }

    async fn detach_now(&self, pair: &Pair, mandate: &Mandate) -> Result<(), Failure> {
        let deadline = Instant::now() + OPERATION_TIME;
        let ec2 = self.ec2.by(deadline).while_wanted(mandate.wanted());
        let Pair { volume, node } = pair;
        let mut machine = Detaching::new(volume.clone(), node.clone());
        let pending = PendingDetach::new(pair, self.tally.metrics());
        // The facts come before the act, always.
        let since = |seen: &Seen<Volume>| Some(seen.present()?.attachment(node)?.attached);
        let mut attached = None;
        let mut step = if self.safe_detach == Mode::Off {
            let seen = ec2.look_volume(volume).await;
            attached = since(&seen).flatten();
            machine.see(&seen, Instant::now())
        } else {
            detaching::Step::Detach
        };
        loop {
            if mandate.is_superseded() {
                return Err(Mandate::superseded_failure());
            }
            match step {
                detaching::Step::Gone => {
                    self.manners.forget(&Key(volume.clone(), node.clone()));
                    if attached.is_some() {
                        self.lately.ended(volume, node, attached);
                    }
                    return Ok(());
                }
                detaching::Step::Refuse(failure) => return Err(failure),
                detaching::Step::Detach => {
                    mandate.check_wanted()?;
                    let force = match self.may_leave(&ec2, pair, mandate, deadline).await? {
                        Leave::Gone => {
                            step = detaching::Step::Gone;
                            continue;
                        }
                        Leave::Leaving => {
                            step = detaching::Step::Wait;
                            continue;
                        }
                        Leave::Now(force) => force,
                    };
                    // The decision took its time.
                    if mandate.is_superseded() {
                        return Err(Mandate::superseded_failure());
                    }
                    mandate.check_wanted()?;
                    let answer = ec2.detach_volume(volume, node, force).await;
                    machine.sent(Instant::now());
                    match answer {
                        Ok(_) => {}
                        Err(error) => match error.kind {
                            Ec2ErrorKind::VolumeNotFound | Ec2ErrorKind::MalformedId => {
                                step = detaching::Step::Gone;
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
                detaching::Step::Wait => {}
            }
            let seen = ec2
                .watch_volume(volume, Watched::Detachment, deadline, |seen| {
                    if mandate.is_superseded() {
                        return ControlFlow::Break(detaching::Step::Wait);
                    }
                    pending.see(seen);
                    attached = since(seen).unwrap_or(attached);
                    if self.lately.may_be_late(seen, volume, node) {
                        return ControlFlow::Continue(());
                    }
                    match machine.see(seen, Instant::now()) {
                        // A person's order may have come since.
                        detaching::Step::Wait
                            if machine.is_leaving() && self.testimony.glasses.is_unused(pair) =>
                        {
                            ControlFlow::Break(detaching::Step::Detach)
                        }
                        detaching::Step::Wait => ControlFlow::Continue(()),
                        step => ControlFlow::Break(step),
                    }
                })
                .await;
            step = seen.ok_or_else(|| machine.overdue())?;
        }
    }
}

/// The instance, when something can be attached to it.
fn alive(node: &InstanceId, instance: Option<Instance>) -> Result<Instance, Failure> {
    instance
        .filter(|instance| {
            !matches!(
                instance.state,
                InstanceState::Terminated | InstanceState::ShuttingDown
            )
        })
        .ok_or_else(|| Failure::not_found("node", node))
}

fn is_mapped(instance: &Instance, volume: &VolumeId) -> bool {
    instance.devices.iter().any(|device| {
        device.volume.as_ref() == Some(volume)
            && matches!(
                device.state,
                AttachmentState::Attaching | AttachmentState::Attached
            )
    })
}

#[cfg(test)]
pub(crate) mod tests;
