//! The state machine of a detach: a function of what EC2 shows and of what this detach has sent. It
//! sends nothing itself.

use std::time::Duration;

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{InstanceId, VolumeId};
use tokio::time::Instant;

use super::own_volume::detach_refused;
use crate::attach::device_name::is_boot_device;
use crate::ec2::csi_failure::failure;
use crate::ec2::{AttachmentState, Ec2Error, Ec2ErrorKind, LookResult, Volume};

/// A request counts as lost when it shows no effect for [`LATE`] and over [`LATE_LOOKS`] looks.
const LATE: Duration = Duration::from_secs(10);
const LATE_LOOKS: u32 = 3;
/// The most requests that one detach sends.
const MOST_REQUESTS: u32 = 4;

/// The next step of the detach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DetachStep {
    /// Look again.
    Wait,
    /// Send DetachVolume.
    Detach,
    /// EC2 shows no attachment.
    Gone,
    /// The detach fails.
    Refuse(Failure),
}

/// The state of one detach.
#[derive(Debug)]
pub(super) struct Detaching {
    volume: VolumeId,
    node: InstanceId,
    requests: u32,
    last_sent: Option<Instant>,
    /// Whether the attachment was seen detaching, or EC2 said that there is none. One look without
    /// the attachment is then proof.
    expected: bool,
    /// Whether EC2 said that the volume is not attached to this node.
    detached: bool,
    absences: u32,
    held: u32,
    denial: Option<String>,
    busy: bool,
    /// Whether the last look showed the attachment detaching.
    leaving: bool,
}

impl Detaching {
    pub(super) fn new(volume: VolumeId, node: InstanceId) -> Self {
        Self {
            volume,
            node,
            requests: 0,
            last_sent: None,
            expected: false,
            detached: false,
            absences: 0,
            held: 0,
            denial: None,
            busy: false,
            leaving: false,
        }
    }

    /// Returns whether the last look showed the attachment detaching.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Returns whether DetachVolume was sent.
    pub(super) fn has_asked(&self) -> bool {
        self.requests > 0
    }

    /// Notes that DetachVolume was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        self.requests += 1;
        self.last_sent = Some(now);
        self.held = 0;
        self.detached = false;
    }

    /// Notes that EC2 found nothing to detach. If EC2 shows the volume, the volume must confirm
    /// that.
    pub(super) fn denied(&mut self, error: &Ec2Error) {
        self.expected = true;
        self.detached = error.kind == Ec2ErrorKind::AttachmentNotFound;
        self.denial = Some(error.to_string());
    }

    /// Returns the failure when the operation's time is over.
    pub(super) fn overdue(&self) -> Failure {
        self.not_yet(Condition::DeadlinePassed)
    }

    fn not_yet(&self, condition: Condition) -> Failure {
        let why = match (self.busy, &self.denial) {
            (true, _) => {
                "the node still uses the device: unmount it there; a node that is down must be stopped or terminated in EC2"
            }
            (false, Some(denial)) => denial,
            (false, None) => "EC2 still works on it",
        };
        Failure::new(
            condition,
            format!("volume {} is not detached from node {} yet: {why}", self.volume, self.node),
        )
    }

    /// Evaluates one fresh look.
    pub(super) fn see(&mut self, seen: &LookResult<Volume>, now: Instant) -> DetachStep {
        let attachment = match seen {
            LookResult::Unknown(error) if error.is_transient() => return DetachStep::Wait,
            LookResult::Unknown(error) => return DetachStep::Refuse(failure(error)),
            LookResult::Absent => return self.see_hidden(now),
            LookResult::Present(volume) => volume
                .attachment(&self.node)
                .filter(|attachment| attachment.state != AttachmentState::Detached),
        };
        self.leaving = attachment.is_some_and(|attachment| {
            matches!(attachment.state, AttachmentState::Detaching | AttachmentState::Busy)
        });
        let Some(attachment) = attachment else {
            // A single look may be late; EC2's answer to the request is not.
            self.absences += 1;
            return match (self.requests, self.expected, self.absences) {
                (0, false, _) => DetachStep::Detach,
                (_, true, _) | (_, false, 2..) => DetachStep::Gone,
                _ => DetachStep::Wait,
            };
        };
        self.absences = 0;
        if self.requests == 0 && is_boot_device(&attachment.device) {
            return DetachStep::Refuse(detach_refused(
                &self.volume,
                &self.node,
                &attachment.device,
            ));
        }
        if !self.leaving {
            return self.see_held(now);
        }
        self.expected = true;
        self.busy = attachment.state == AttachmentState::Busy;
        // A detach that was requested earlier continues by itself.
        self.last_sent.get_or_insert(now);
        self.held = 0;
        DetachStep::Wait
    }

    /// Evaluates a look in which EC2 does not show the volume: it is deleted, or reads have a gap.
    /// Only EC2's answer to the request distinguishes the two cases.
    fn see_hidden(&mut self, now: Instant) -> DetachStep {
        self.leaving = false;
        match self.detached {
            true => DetachStep::Gone,
            false => self.see_held(now),
        }
    }

    fn see_held(&mut self, now: Instant) -> DetachStep {
        let Some(sent) = self.last_sent else {
            return DetachStep::Detach;
        };
        self.held += 1;
        if self.held < LATE_LOOKS || now.duration_since(sent) < LATE {
            return DetachStep::Wait;
        }
        if self.requests < MOST_REQUESTS {
            return DetachStep::Detach;
        }
        DetachStep::Refuse(self.not_yet(Condition::OperationPending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::{attachment, error, node, other_node, unknown};
    use crate::ec2::example_volume;
    use crate::ec2::{Attachment, VolumeState};

    fn with(state: AttachmentState) -> LookResult<Volume> {
        LookResult::Present(Volume {
            state: VolumeState::InUse,
            attachments: vec![
                attachment(node(), state),
                attachment(other_node(), AttachmentState::Attached),
            ],
            ..example_volume()
        })
    }

    fn free() -> LookResult<Volume> {
        LookResult::Present(example_volume())
    }

    fn machine() -> Detaching {
        Detaching::new(example_volume().id, node())
    }

    #[test]
    fn first_volume_state_decides_detach_wait_or_refusal() {
        let now = Instant::now();
        for (seen, want) in [
            (with(AttachmentState::Attached), DetachStep::Detach),
            (with(AttachmentState::Attaching), DetachStep::Detach),
            (with(AttachmentState::Detaching), DetachStep::Wait),
            (with(AttachmentState::Busy), DetachStep::Wait),
            (with(AttachmentState::Detached), DetachStep::Detach),
            (free(), DetachStep::Detach),
            (LookResult::Absent, DetachStep::Detach),
            (unknown(Ec2ErrorKind::NoAnswer), DetachStep::Wait),
        ] {
            assert_eq!(machine().see(&seen, now), want, "{seen:?}");
        }
        let refused = machine().see(&unknown(Ec2ErrorKind::Unauthorized), now);
        assert!(matches!(refused, DetachStep::Refuse(_)));
    }

    /// One absence alone may be a late read; a seen detach, a denial by EC2 or a second absence
    /// confirms it.
    #[test]
    fn gone_needs_seen_detach_or_second_absence() {
        let now = Instant::now();
        let mut seen_leaving = machine();
        seen_leaving.sent(now);
        assert_eq!(seen_leaving.see(&with(AttachmentState::Detaching), now), DetachStep::Wait);
        assert_eq!(seen_leaving.see(&free(), now), DetachStep::Gone);

        let mut unseen = machine();
        unseen.sent(now);
        assert_eq!(unseen.see(&free(), now), DetachStep::Wait);
        assert_eq!(unseen.see(&free(), now), DetachStep::Gone);

        let mut denied = machine();
        assert_eq!(denied.see(&free(), now), DetachStep::Detach);
        denied.sent(now);
        denied.denied(&error(Ec2ErrorKind::AttachmentNotFound));
        assert_eq!(denied.see(&free(), now), DetachStep::Gone);
    }

    /// Reads can miss a volume; only the error AttachmentNotFound proves that it is detached.
    #[test]
    fn hidden_volume_is_gone_only_after_ec2_denial() {
        let now = Instant::now();
        let mut machine = machine();
        assert_eq!(machine.see(&LookResult::Absent, now), DetachStep::Detach);
        machine.sent(now);
        machine.see(&with(AttachmentState::Detaching), now);
        for _ in 0..LATE_LOOKS {
            assert_eq!(machine.see(&LookResult::Absent, now), DetachStep::Wait);
        }
        assert_eq!(machine.see(&LookResult::Absent, now + LATE), DetachStep::Detach);
        machine.sent(now + LATE);
        machine.denied(&error(Ec2ErrorKind::AttachmentNotFound));
        assert_eq!(machine.see(&LookResult::Absent, now + LATE), DetachStep::Gone);
    }

    #[test]
    fn denial_contradicted_by_volume_is_not_gone() {
        let now = Instant::now();
        let mut machine = machine();
        for _ in 0..MOST_REQUESTS {
            machine.sent(now);
            machine.denied(&error(Ec2ErrorKind::IncorrectState));
        }
        let held = with(AttachmentState::Attached);
        assert_eq!(machine.see(&held, now), DetachStep::Wait);
        assert_eq!(machine.see(&held, now), DetachStep::Wait);
        match machine.see(&held, now + LATE) {
            DetachStep::Refuse(failure) => {
                assert_eq!(failure.condition(), Condition::OperationPending)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn detach_without_effect_is_resent_after_10_seconds() {
        let now = Instant::now();
        let mut machine = machine();
        machine.sent(now);
        let held = with(AttachmentState::Attached);
        for _ in 0..5 {
            assert_eq!(machine.see(&held, now), DetachStep::Wait);
        }
        assert_eq!(machine.see(&held, now + LATE), DetachStep::Detach);
    }

    #[test]
    fn boot_device_is_never_detached() {
        for device in ["/dev/xvda", "/dev/sda1"] {
            let seen = LookResult::Present(Volume {
                state: VolumeState::InUse,
                attachments: vec![Attachment {
                    device: device.to_owned(),
                    ..attachment(node(), AttachmentState::Attached)
                }],
                ..example_volume()
            });
            match machine().see(&seen, Instant::now()) {
                DetachStep::Refuse(failure) => assert_eq!(failure.condition(), Condition::InUse),
                other => panic!("{device}: {other:?}"),
            }
        }
    }

    #[test]
    fn busy_device_timeout_asks_for_unmount() {
        let now = Instant::now();
        let mut machine = machine();
        machine.see(&with(AttachmentState::Busy), now);
        assert!(machine.overdue().text().contains("unmount"));
    }
}
