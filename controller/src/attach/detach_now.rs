//! One detach: the looks, decisions and requests that its state machine ([`super::detaching`]) asks
//! for.

use ebs_csi_ec2::{
    Action, AttachmentState, Call, Ec2Error, Ec2ErrorKind, Force, LookResult, READ_LAG, Volume,
    WatchedChange,
};
use ebs_csi_proto::Failure;
use tokio::time::Instant;

use super::detach_decision::DetachDecision;
use super::detaching::{DetachStep, Detaching};
use super::{Attachments, OPERATION_TIME};
use crate::metrics::Metrics;
use crate::operation::Cancellation;
use crate::request::Pair;
use crate::safe_detach::Mode;

impl Attachments {
    /// Detaches the volume, unless `cancellation` says that nobody wants it any more.
    pub(super) async fn detach_now(
        &self,
        pair: &Pair,
        cancellation: &Cancellation,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let deadline = began + OPERATION_TIME;
        let ec2 = &self.ec2;
        let call = Call::until(deadline).while_wanted(cancellation.wanted());
        let Pair { volume, node } = pair;
        if self.was_detached(&call, pair).await {
            return Ok(());
        }
        let mut machine = Detaching::new(pair.clone(), began, self.publish_options.published(pair));
        let is_detached = |look: &LookResult<Volume>| match look {
            LookResult::Present(volume) => volume.attachment(node).is_none(),
            LookResult::Absent => true,
            LookResult::Unknown(_) => false,
        };
        let queued = ec2.wait_in_queue(&call, Action::DetachVolume, volume, is_detached);
        let call = queued.await?;
        cancellation.check_not_superseded()?;
        let mut pending = PendingDetach::new(pair, self.operation_count.metrics());
        // With safe detach, `decide_detach` gathers the facts before any DetachVolume.
        let mut step = if self.safe_detach == Mode::Off {
            let look = ec2.look_volume_dated(&call, volume).await;
            machine.observe(&look, Instant::now())
        } else {
            DetachStep::Detach
        };
        loop {
            cancellation.check_not_superseded()?;
            match step {
                DetachStep::Done => {
                    self.publish_options.remove(pair);
                    if let attached @ Some(_) = machine.attached() {
                        self.recent.note_ended(pair, attached);
                    }
                    if machine.has_sent() {
                        self.recent.note_detached(pair);
                    }
                    self.cluster_evidence.overrides.note_done(pair);
                    return Ok(());
                }
                DetachStep::Refuse(failure) => return Err(failure),
                DetachStep::Detach => {
                    cancellation.check_wanted()?;
                    let decision = self
                        .decide_detach(&call, pair, &mut machine, cancellation, deadline)
                        .await?;
                    let (force, looked_at) = match decision {
                        DetachDecision::NotAttached => {
                            step = DetachStep::Done;
                            continue;
                        }
                        DetachDecision::InProgress => {
                            step = DetachStep::Wait;
                            continue;
                        }
                        DetachDecision::Send(force, looked_at) => (force, looked_at),
                    };
                    // The decision may have taken long.
                    cancellation.check_not_superseded()?;
                    cancellation.check_wanted()?;
                    let answer = self.send_detach(&call, pair, force, looked_at).await;
                    if let Err(error) = &answer
                        && error.kind == Ec2ErrorKind::Stale
                    {
                        step = DetachStep::Detach;
                        continue;
                    }
                    machine.note_sent(Instant::now());
                    match answer {
                        Ok(()) => {}
                        Err(error) => match error.kind {
                            Ec2ErrorKind::VolumeNotFound | Ec2ErrorKind::MalformedId => {
                                step = DetachStep::Done;
                                continue;
                            }
                            Ec2ErrorKind::AttachmentNotFound
                            | Ec2ErrorKind::IncorrectState
                            | Ec2ErrorKind::InstanceNotFound => machine.note_denied(&error),
                            _ if error.may_have_happened() => {
                                tracing::warn!(%error, "whether the detach was accepted is seen at the volume");
                            }
                            _ => return Err(error.into()),
                        },
                    }
                }
                DetachStep::LookAt(at) => {
                    tokio::time::sleep_until(at.min(deadline)).await;
                    let look = ec2.look_volume_dated(&call, volume).await;
                    step = machine.observe(&look, Instant::now());
                    continue;
                }
                DetachStep::Wait => {}
            }
            let next = ec2
                .watch_volume(&call, volume, WatchedChange::Detachment, deadline, |look| {
                    if cancellation.is_superseded() {
                        return Some(DetachStep::Wait);
                    }
                    pending.record_state(&look.result);
                    match machine.observe(look, Instant::now()) {
                        // An override order may have come since.
                        DetachStep::Wait
                            if machine.is_detaching()
                                && self.cluster_evidence.overrides.is_unused(pair) =>
                        {
                            Some(DetachStep::Detach)
                        }
                        DetachStep::Wait => None,
                        step => Some(step),
                    }
                })
                .await;
            step = next.ok_or_else(|| {
                pending.is_overdue = true;
                machine.overdue_failure()
            })?;
        }
    }

    /// Sends DetachVolume, and uses up the override order of a forced one. `looked_at` is when the
    /// oldest of the facts was read.
    pub(super) async fn send_detach(
        &self,
        call: &Call,
        pair: &Pair,
        force: Force,
        looked_at: Instant,
    ) -> Result<(), Ec2Error> {
        let answer = self
            .ec2
            .detach_volume(call, &pair.volume, &pair.node, force, looked_at)
            .await
            .map(drop);
        let is_sent = !matches!(&answer, Err(error) if error.kind == Ec2ErrorKind::Stale);
        if is_sent && force == Force::Yes && self.cluster_evidence.overrides.use_up(pair) {
            self.operation_count.metrics().forced_detach();
        }
        answer
    }

    /// Returns whether an earlier operation of this process detached the volume and nobody has
    /// attached the volume again. When no caller waited for that detach to end,
    /// the repeated call would need another DetachVolume as its proof without this.
    ///
    /// The look is made when reads show every attach from before this call.
    async fn was_detached(&self, call: &Call, pair: &Pair) -> bool {
        if self.safe_detach != Mode::Off || !self.recent.was_detached(pair) {
            return false;
        }
        tokio::time::sleep(READ_LAG).await;
        let look = self.ec2.look_volume(call, &pair.volume).await;
        look.present().is_some_and(|volume| volume.attachment(&pair.node).is_none())
    }
}

/// Shows one detach as pending while this value lives, and afterwards too when the detach ran out
/// of time.
struct PendingDetach<'a> {
    pair: &'a Pair,
    metrics: &'a Metrics,
    since: Instant,
    /// Whether the operation's time is over before the detach has ended.
    is_overdue: bool,
}

impl<'a> PendingDetach<'a> {
    fn new(pair: &'a Pair, metrics: &'a Metrics) -> Self {
        Self { pair, metrics, since: Instant::now(), is_overdue: false }
    }

    fn record_state(&self, look: &LookResult<Volume>) {
        let Some(attachment) = look.present().and_then(|volume| volume.attachment(&self.pair.node))
        else {
            return;
        };
        let state = match &attachment.state {
            AttachmentState::Attaching => "attaching",
            AttachmentState::Attached => "attached",
            AttachmentState::Detaching => "detaching",
            AttachmentState::Detached => "detached",
            AttachmentState::Busy => "busy",
            AttachmentState::Other(other) => other,
        };
        let Pair { volume, node } = self.pair;
        self.metrics.detach_pending(volume.as_str(), node.as_str(), state, self.since);
    }
}

impl Drop for PendingDetach<'_> {
    fn drop(&mut self) {
        let Pair { volume, node } = self.pair;
        match self.is_overdue {
            true => self.metrics.detach_timed_out(volume.as_str(), node.as_str()),
            false => self.metrics.detach_ended(volume.as_str(), node.as_str()),
        }
    }
}
