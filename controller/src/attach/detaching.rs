//! The state machine of a detach: a function of what EC2 shows and of what this detach has sent. It
//! sends nothing itself.

use std::time::Duration;

use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;

use super::own_volume::root_volume_refusal;
use crate::attach::device_name::is_boot_device;
use crate::ec2::csi_failure::failure;
use crate::ec2::{AttachmentState, Ec2Error, Ec2ErrorKind, LookResult, Volume};
use crate::request::Pair;

/// A request counts as lost when it shows no effect for [`NO_EFFECT_AFTER`] and over
/// [`NO_EFFECT_LOOKS`] looks.
const NO_EFFECT_AFTER: Duration = Duration::from_secs(10);
const NO_EFFECT_LOOKS: u32 = 3;
/// The most requests that one detach sends.
const MAX_REQUESTS: u32 = 4;

/// The next step of the detach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DetachStep {
    /// Look again.
    Wait,
    /// Send DetachVolume.
    Detach,
    /// EC2 shows no attachment.
    Done,
    /// The detach fails.
    Refuse(Failure),
}

/// The state of one detach.
#[derive(Debug)]
pub(super) struct Detaching {
    pair: Pair,
    requests: u32,
    last_sent: Option<Instant>,
    /// Whether the attachment was seen detaching, or EC2 said that there is none. One look without
    /// the attachment is then proof.
    absence_is_proof: bool,
    /// Whether EC2 said that the volume is not attached to this node.
    is_denied: bool,
    absences: u32,
    held_looks: u32,
    denial: Option<String>,
    is_busy: bool,
    /// Whether the last look showed the attachment detaching.
    is_detaching: bool,
}

impl Detaching {
    pub(super) fn new(pair: Pair) -> Self {
        Self {
            pair,
            requests: 0,
            last_sent: None,
            absence_is_proof: false,
            is_denied: false,
            absences: 0,
            held_looks: 0,
            denial: None,
            is_busy: false,
            is_detaching: false,
        }
    }

    /// Returns whether the last look showed the attachment detaching.
    pub(super) fn is_detaching(&self) -> bool {
        self.is_detaching
    }

    /// Returns whether DetachVolume was sent.
    pub(super) fn has_sent(&self) -> bool {
        self.requests > 0
    }

    /// Notes that DetachVolume was sent.
    pub(super) fn note_sent(&mut self, now: Instant) {
        self.requests += 1;
        self.last_sent = Some(now);
        self.held_looks = 0;
        self.is_denied = false;
    }

    /// Notes that EC2 found nothing to detach. If EC2 shows the volume, the volume must confirm
    /// that.
    pub(super) fn note_denied(&mut self, error: &Ec2Error) {
        self.absence_is_proof = true;
        self.is_denied = error.kind == Ec2ErrorKind::AttachmentNotFound;
        self.denial = Some(error.to_string());
    }

    /// Returns the failure when the operation's time is over.
    pub(super) fn overdue_failure(&self) -> Failure {
        self.pending_failure(Condition::DeadlinePassed)
    }

    fn pending_failure(&self, condition: Condition) -> Failure {
        let why = match (self.is_busy, &self.denial) {
            (true, _) => {
                "the node still uses the device: unmount it there; a node that is down must be stopped or terminated in EC2"
            }
            (false, Some(denial)) => denial,
            (false, None) => "EC2 still works on it",
        };
        Failure::new(
            condition,
            format!(
                "volume {} is not detached from node {} yet: {why}",
                self.pair.volume, self.pair.node
            ),
        )
    }

    /// Evaluates one fresh look.
    pub(super) fn observe(&mut self, look: &LookResult<Volume>, now: Instant) -> DetachStep {
        let attachment = match look {
            LookResult::Unknown(error) if error.is_transient() => return DetachStep::Wait,
            LookResult::Unknown(error) => return DetachStep::Refuse(failure(error)),
            LookResult::Absent => return self.observe_absent_volume(now),
            LookResult::Present(volume) => volume
                .attachment(&self.pair.node)
                .filter(|attachment| attachment.state != AttachmentState::Detached),
        };
        self.is_detaching = attachment.is_some_and(|attachment| {
            matches!(attachment.state, AttachmentState::Detaching | AttachmentState::Busy)
        });
        let Some(attachment) = attachment else {
            // A single look may be late; EC2's answer to the request is not.
            self.absences += 1;
            return match (self.requests, self.absence_is_proof, self.absences) {
                (0, false, _) => DetachStep::Detach,
                (_, true, _) | (_, false, 2..) => DetachStep::Done,
                _ => DetachStep::Wait,
            };
        };
        self.absences = 0;
        if self.requests == 0 && is_boot_device(&attachment.device) {
            return DetachStep::Refuse(root_volume_refusal(
                &self.pair.volume,
                &self.pair.node,
                &attachment.device,
            ));
        }
        if !self.is_detaching {
            return self.observe_held(now);
        }
        self.absence_is_proof = true;
        self.is_busy = attachment.state == AttachmentState::Busy;
        // A detach that was requested earlier continues by itself.
        self.last_sent.get_or_insert(now);
        self.held_looks = 0;
        DetachStep::Wait
    }

    /// Evaluates a look in which EC2 does not show the volume: it is deleted, or reads have a gap.
    /// Only EC2's answer to the request distinguishes the two cases.
    fn observe_absent_volume(&mut self, now: Instant) -> DetachStep {
        self.is_detaching = false;
        match self.is_denied {
            true => DetachStep::Done,
            false => self.observe_held(now),
        }
    }

    fn observe_held(&mut self, now: Instant) -> DetachStep {
        let Some(sent) = self.last_sent else {
            return DetachStep::Detach;
        };
        self.held_looks += 1;
        if self.held_looks < NO_EFFECT_LOOKS || now.duration_since(sent) < NO_EFFECT_AFTER {
            return DetachStep::Wait;
        }
        if self.requests < MAX_REQUESTS {
            return DetachStep::Detach;
        }
        DetachStep::Refuse(self.pending_failure(Condition::OperationPending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::{attachment, error, node, other_node, pair, unknown};
    use crate::ec2::example_volume;
    use crate::ec2::{Attachment, VolumeState};

    fn with(state: AttachmentState) -> LookResult<Volume> {
        in_use(vec![attachment(node(), state), attachment(other_node(), AttachmentState::Attached)])
    }

    fn in_use(attachments: Vec<Attachment>) -> LookResult<Volume> {
        LookResult::Present(Volume { state: VolumeState::InUse, attachments, ..example_volume() })
    }

    fn refusal(step: DetachStep) -> Condition {
        match step {
            DetachStep::Refuse(failure) => failure.condition(),
            other => panic!("{other:?}"),
        }
    }

    fn free() -> LookResult<Volume> {
        LookResult::Present(example_volume())
    }

    fn machine() -> Detaching {
        Detaching::new(pair())
    }

    #[test]
    fn first_volume_state_decides_detach_wait_or_refusal() {
        let now = Instant::now();
        for (look, want) in [
            (with(AttachmentState::Attached), DetachStep::Detach),
            (with(AttachmentState::Attaching), DetachStep::Detach),
            (with(AttachmentState::Detaching), DetachStep::Wait),
            (with(AttachmentState::Busy), DetachStep::Wait),
            (with(AttachmentState::Detached), DetachStep::Detach),
            (free(), DetachStep::Detach),
            (LookResult::Absent, DetachStep::Detach),
            (unknown(Ec2ErrorKind::NoAnswer), DetachStep::Wait),
        ] {
            assert_eq!(machine().observe(&look, now), want, "{look:?}");
        }
        let refused = machine().observe(&unknown(Ec2ErrorKind::Unauthorized), now);
        assert_eq!(refusal(refused), Condition::NotPermitted);
    }

    /// One absence alone may be a late read; a seen detach, a denial by EC2 or a second absence
    /// confirms it.
    #[test]
    fn gone_needs_seen_detach_or_second_absence() {
        let now = Instant::now();
        let mut seen_detaching = machine();
        seen_detaching.note_sent(now);
        let detaching = with(AttachmentState::Detaching);
        assert_eq!(seen_detaching.observe(&detaching, now), DetachStep::Wait);
        assert_eq!(seen_detaching.observe(&free(), now), DetachStep::Done);

        let mut unseen = machine();
        unseen.note_sent(now);
        assert_eq!(unseen.observe(&free(), now), DetachStep::Wait);
        assert_eq!(unseen.observe(&free(), now), DetachStep::Done);

        let mut denied = machine();
        assert_eq!(denied.observe(&free(), now), DetachStep::Detach);
        denied.note_sent(now);
        denied.note_denied(&error(Ec2ErrorKind::AttachmentNotFound));
        assert_eq!(denied.observe(&free(), now), DetachStep::Done);
    }

    /// Reads can miss a volume; only the error AttachmentNotFound proves that it is detached.
    #[test]
    fn hidden_volume_is_gone_only_after_ec2_denial() {
        let now = Instant::now();
        let mut machine = machine();
        assert_eq!(machine.observe(&LookResult::Absent, now), DetachStep::Detach);
        machine.note_sent(now);
        machine.observe(&with(AttachmentState::Detaching), now);
        for _ in 0..NO_EFFECT_LOOKS {
            assert_eq!(machine.observe(&LookResult::Absent, now), DetachStep::Wait);
        }
        assert_eq!(machine.observe(&LookResult::Absent, now + NO_EFFECT_AFTER), DetachStep::Detach);
        machine.note_sent(now + NO_EFFECT_AFTER);
        machine.note_denied(&error(Ec2ErrorKind::AttachmentNotFound));
        assert_eq!(machine.observe(&LookResult::Absent, now + NO_EFFECT_AFTER), DetachStep::Done);
    }

    #[test]
    fn denial_contradicted_by_volume_is_not_gone() {
        let now = Instant::now();
        let mut machine = machine();
        for _ in 0..MAX_REQUESTS {
            machine.note_sent(now);
            machine.note_denied(&error(Ec2ErrorKind::IncorrectState));
        }
        let held = with(AttachmentState::Attached);
        assert_eq!(machine.observe(&held, now), DetachStep::Wait);
        assert_eq!(machine.observe(&held, now), DetachStep::Wait);
        let last = machine.observe(&held, now + NO_EFFECT_AFTER);
        assert_eq!(refusal(last), Condition::OperationPending);
    }

    #[test]
    fn detach_without_effect_is_resent_after_10_seconds() {
        let now = Instant::now();
        let mut machine = machine();
        machine.note_sent(now);
        let held = with(AttachmentState::Attached);
        for _ in 0..5 {
            assert_eq!(machine.observe(&held, now), DetachStep::Wait);
        }
        assert_eq!(machine.observe(&held, now + NO_EFFECT_AFTER), DetachStep::Detach);
    }

    #[test]
    fn boot_device_is_never_detached() {
        for device in ["/dev/xvda", "/dev/sda1"] {
            let attached = attachment(node(), AttachmentState::Attached);
            let look = in_use(vec![Attachment { device: device.to_owned(), ..attached }]);
            let refused = machine().observe(&look, Instant::now());
            assert_eq!(refusal(refused), Condition::InUse, "{device}");
        }
    }

    #[test]
    fn busy_device_timeout_asks_for_unmount() {
        let now = Instant::now();
        let mut machine = machine();
        machine.observe(&with(AttachmentState::Busy), now);
        assert!(machine.overdue_failure().text().contains("unmount"));
    }
}
