//! The state machine of a detach: a function of what EC2 shows and of what this detach has sent. It
//! sends nothing itself.

use std::time::Duration;

use ebs_csi_ec2::{
    AttachmentState, DatedLook, Ec2Error, Ec2ErrorKind, LookResult, READ_LAG, Timestamp, Volume,
};
use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;

use super::own_volume::root_volume_refusal;
use crate::attach::device_name::is_boot_device;
use crate::request::Pair;

/// A request counts as lost when it shows no effect for [`NO_EFFECT_AFTER`] and over
/// [`NO_EFFECT_LOOKS`] looks.
const NO_EFFECT_AFTER: Duration = Duration::from_secs(10);
const NO_EFFECT_LOOKS: u32 = 3;
/// The most requests that one detach sends.
const MAX_REQUESTS: u32 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DetachStep {
    /// Watch the volume.
    Wait,
    /// Look again at this time: the volume shows no attachment, which proves nothing before.
    LookAt(Instant),
    Detach,
    /// EC2 shows no attachment.
    Done,
    Refuse(Failure),
}

#[derive(Debug)]
pub(super) struct Detaching {
    pair: Pair,
    began: Instant,
    /// The attachment that this process published, by its attach time, and since when this process
    /// has known it.
    published: Option<(Timestamp, Instant)>,
    /// The attach time of the attachment that the last look with an attachment showed.
    attached: Option<Timestamp>,
    requests: u32,
    last_sent: Option<Instant>,
    /// Whether the attachment was seen detaching, or EC2 said that there is none.
    is_end_expected: bool,
    /// Whether EC2 said that the volume is not attached to this node.
    is_denied: bool,
    held_looks: u32,
    denial: Option<String>,
    is_busy: bool,
    /// Whether the last look showed the attachment detaching.
    is_detaching: bool,
}

impl Detaching {
    /// Creates the state of a detach that was asked for at `began`. `published` is the attach time
    /// of the attachment that this process published, and since when it has known that attachment.
    pub(super) fn new(pair: Pair, began: Instant, published: Option<(Timestamp, Instant)>) -> Self {
        Self {
            pair,
            began,
            published,
            attached: None,
            requests: 0,
            last_sent: None,
            is_end_expected: false,
            is_denied: false,
            held_looks: 0,
            denial: None,
            is_busy: false,
            is_detaching: false,
        }
    }

    pub(super) fn is_detaching(&self) -> bool {
        self.is_detaching
    }

    pub(super) fn has_sent(&self) -> bool {
        self.requests > 0
    }

    /// Returns from when on a look that shows no attachment proves that there is none, given when
    /// the call of that look began. An earlier look may show the state before the attach: reads lag
    /// behind writes by [`READ_LAG`].
    ///
    /// EC2 accepted the attach before this process saw the attachment; an attach by another
    /// process, before the call that asks for the detach, and before a DetachVolume that EC2
    /// accepted.
    pub(super) fn absence_counts_from(&self) -> Instant {
        let published = self.published.filter(|(attached, _)| self.attached == Some(*attached));
        let attached_by = match published {
            Some((_, since)) => since,
            None => self.last_sent.map_or(self.began, |sent| sent.max(self.began)),
        };
        attached_by + READ_LAG
    }

    pub(super) fn note_attached(&mut self, attached: Option<Timestamp>) {
        self.attached = attached;
    }

    pub(super) fn attached(&self) -> Option<Timestamp> {
        self.attached
    }

    pub(super) fn note_sent(&mut self, now: Instant) {
        self.requests += 1;
        self.last_sent = Some(now);
        self.held_looks = 0;
        self.is_denied = false;
        self.is_end_expected = false;
    }

    /// Notes that EC2 found nothing to detach. If EC2 shows the volume, the volume must confirm
    /// that.
    pub(super) fn note_denied(&mut self, error: &Ec2Error) {
        self.is_end_expected = true;
        self.is_denied = error.kind == Ec2ErrorKind::AttachmentNotFound;
        self.denial = Some(error.to_string());
    }

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
    pub(super) fn observe(&mut self, look: &DatedLook<Volume>, now: Instant) -> DetachStep {
        let attachment = match &look.result {
            LookResult::Unknown(error) if error.is_transient() => return DetachStep::Wait,
            LookResult::Unknown(error) => return DetachStep::Refuse(error.into()),
            LookResult::Absent => return self.observe_absent_volume(now),
            LookResult::Present(volume) => volume
                .attachment(&self.pair.node)
                .filter(|attachment| attachment.state != AttachmentState::Detached),
        };
        self.is_detaching = attachment.is_some_and(|attachment| {
            matches!(attachment.state, AttachmentState::Detaching | AttachmentState::Busy)
        });
        let Some(attachment) = attachment else {
            let counts_from = self.absence_counts_from();
            return match look.began >= counts_from {
                true => DetachStep::Done,
                // EC2's answer to the request is not late.
                false if self.requests == 0 && !self.is_end_expected => DetachStep::Detach,
                false => DetachStep::LookAt(counts_from),
            };
        };
        self.note_attached(attachment.attached);
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
        self.is_end_expected = true;
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
    use crate::attach::tests::{attach_time, attachment, error, node, other_node, pair, unknown};
    use crate::example::example_volume;
    use ebs_csi_ec2::{Attachment, VolumeState};

    fn with(state: AttachmentState) -> DatedLook<Volume> {
        in_use(vec![attachment(node(), state), attachment(other_node(), AttachmentState::Attached)])
    }

    fn in_use(attachments: Vec<Attachment>) -> DatedLook<Volume> {
        let volume = Volume { state: VolumeState::InUse, attachments, ..example_volume() };
        now(LookResult::Present(volume))
    }

    fn now(result: LookResult<Volume>) -> DatedLook<Volume> {
        at(Instant::now(), result)
    }

    fn at(began: Instant, result: LookResult<Volume>) -> DatedLook<Volume> {
        DatedLook { began, result }
    }

    fn refusal(step: DetachStep) -> Condition {
        match step {
            DetachStep::Refuse(failure) => failure.condition(),
            other => panic!("{other:?}"),
        }
    }

    fn free() -> DatedLook<Volume> {
        now(LookResult::Present(example_volume()))
    }

    fn hidden() -> DatedLook<Volume> {
        now(LookResult::Absent)
    }

    fn machine() -> Detaching {
        Detaching::new(pair(), Instant::now(), None)
    }

    #[test]
    fn first_volume_state_decides_detach_wait_or_refusal() {
        let time = Instant::now();
        for (look, want) in [
            (with(AttachmentState::Attached), DetachStep::Detach),
            (with(AttachmentState::Attaching), DetachStep::Detach),
            (with(AttachmentState::Detaching), DetachStep::Wait),
            (with(AttachmentState::Busy), DetachStep::Wait),
            (with(AttachmentState::Detached), DetachStep::Detach),
            (free(), DetachStep::Detach),
            (hidden(), DetachStep::Detach),
            (now(unknown(Ec2ErrorKind::NoAnswer)), DetachStep::Wait),
        ] {
            assert_eq!(machine().observe(&look, time), want, "{look:?}");
        }
        let refused = machine().observe(&now(unknown(Ec2ErrorKind::Unauthorized)), time);
        assert_eq!(refusal(refused), Condition::NotPermitted);
    }

    /// A read that is late by up to [`READ_LAG`] may show the state before the attach.
    #[tokio::test(start_paused = true)]
    async fn absence_counts_read_lag_after_latest_attach() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let absent = |seconds| at(after(seconds), LookResult::Present(example_volume()));
        let shown = |seconds| {
            let attachment = attachment(node(), AttachmentState::Attached);
            in_use(vec![Attachment { attached: attach_time(seconds), ..attachment }])
        };
        let observe = |machine: &mut Detaching, look| machine.observe(&look, Instant::now());

        // Without a request, EC2's answer to one decides until absence counts.
        let mut unseen = machine();
        assert_eq!(observe(&mut unseen, absent(1)), DetachStep::Detach);
        assert_eq!(observe(&mut unseen, absent(2)), DetachStep::Done);
        // EC2 accepted the request, so the volume was attached until then.
        unseen.note_sent(after(3));
        assert_eq!(observe(&mut unseen, absent(4)), DetachStep::LookAt(after(5)));
        assert_eq!(observe(&mut unseen, absent(5)), DetachStep::Done);
        // A denial and a detach under way do not date a look either.
        let mut denied = machine();
        denied.note_sent(after(0));
        denied.note_denied(&error(Ec2ErrorKind::AttachmentNotFound));
        assert_eq!(observe(&mut denied, absent(1)), DetachStep::LookAt(after(2)));
        let mut detaching = machine();
        assert_eq!(observe(&mut detaching, with(AttachmentState::Detaching)), DetachStep::Wait);
        assert_eq!(observe(&mut detaching, absent(1)), DetachStep::LookAt(after(2)));

        // The attachment that this process published is older than the lag.
        let published = |seconds| {
            let known_since = began - READ_LAG;
            Detaching::new(pair(), began, Some((attach_time(seconds).unwrap(), known_since)))
        };
        for (shown_at, want) in [(7, DetachStep::Done), (8, DetachStep::LookAt(after(2)))] {
            let mut machine = published(7);
            assert_eq!(observe(&mut machine, shown(shown_at)), DetachStep::Detach);
            machine.note_sent(after(0));
            assert_eq!(observe(&mut machine, absent(0)), want);
        }
    }

    /// Reads can miss a volume; only the error AttachmentNotFound proves that it is detached.
    #[test]
    fn hidden_volume_is_gone_only_after_ec2_denial() {
        let time = Instant::now();
        let mut machine = machine();
        assert_eq!(machine.observe(&hidden(), time), DetachStep::Detach);
        machine.note_sent(time);
        machine.observe(&with(AttachmentState::Detaching), time);
        for _ in 0..NO_EFFECT_LOOKS {
            assert_eq!(machine.observe(&hidden(), time), DetachStep::Wait);
        }
        assert_eq!(machine.observe(&hidden(), time + NO_EFFECT_AFTER), DetachStep::Detach);
        machine.note_sent(time + NO_EFFECT_AFTER);
        machine.note_denied(&error(Ec2ErrorKind::AttachmentNotFound));
        assert_eq!(machine.observe(&hidden(), time + NO_EFFECT_AFTER), DetachStep::Done);
    }

    #[test]
    fn denial_contradicted_by_volume_is_not_gone() {
        let time = Instant::now();
        let mut machine = machine();
        for _ in 0..MAX_REQUESTS {
            machine.note_sent(time);
            machine.note_denied(&error(Ec2ErrorKind::IncorrectState));
        }
        let held = with(AttachmentState::Attached);
        assert_eq!(machine.observe(&held, time), DetachStep::Wait);
        assert_eq!(machine.observe(&held, time), DetachStep::Wait);
        let last = machine.observe(&held, time + NO_EFFECT_AFTER);
        assert_eq!(refusal(last), Condition::OperationPending);
    }

    #[test]
    fn detach_without_effect_is_resent_after_10_seconds() {
        let time = Instant::now();
        let mut machine = machine();
        machine.note_sent(time);
        let held = with(AttachmentState::Attached);
        for _ in 0..5 {
            assert_eq!(machine.observe(&held, time), DetachStep::Wait);
        }
        assert_eq!(machine.observe(&held, time + NO_EFFECT_AFTER), DetachStep::Detach);
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
        let time = Instant::now();
        let mut machine = machine();
        machine.observe(&with(AttachmentState::Busy), time);
        assert!(machine.overdue_failure().text().contains("unmount"));
    }
}
