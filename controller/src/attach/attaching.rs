//! The state machine of an attach: a function of what EC2 shows and of what this attach has sent.
//! It sends nothing itself.

use std::time::Duration;

use ebs_csi_ec2::{
    Attachment, AttachmentState, Ec2Error, LookResult, Timestamp, Volume, VolumeState,
};
use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;

use super::Attached;
use crate::request::Pair;
use crate::volume::holders;

/// An attachment that stays in `attaching` for this long counts as stuck.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(90);
/// A request whose effect is not seen may be late: reads lag behind writes.
const NO_EFFECT_AFTER: Duration = Duration::from_secs(5);
const NO_EFFECT_LOOKS: u32 = 3;
/// An attachment that was seen and then is missing in this many looks in a row has failed in EC2.
const LOST_LOOKS: u32 = 2;
/// The least time between the request and that conclusion: a late read shows the volume as it was
/// before the request.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// An attachment that began more than this many seconds before EC2 accepted the request is another
/// one. The two times of one attachment, in EC2's answers to the request and to a look, may differ
/// by rounding.
const OTHER_ATTACHMENT: i64 = 5;
/// The most requests that one attach sends.
const MAX_REQUESTS: u32 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttachStep {
    /// Look again.
    Wait,
    Attach,
    Done(Box<Attached>),
    /// The volume has been attaching for too long.
    Stuck,
    Refuse(Failure),
}

#[derive(Debug)]
pub(super) struct Attaching {
    pair: Pair,
    /// Whether the caller wants the volume at several nodes.
    is_shared: bool,
    requests: u32,
    last_sent: Option<Instant>,
    /// When EC2 accepted the latest request.
    accepted_at: Option<Timestamp>,
    /// Until when a look may show the state before the latest request, if it is unknown whether EC2
    /// accepted that request.
    unclear_until: Option<Instant>,
    attaching_since: Option<Instant>,
    missing: u32,
    waiting_for: Option<String>,
    /// The KMS key of an encrypted volume, as EC2 last showed it.
    key: Option<String>,
}

impl Attaching {
    pub(super) fn new(pair: Pair, is_shared: bool) -> Self {
        Self {
            pair,
            is_shared,
            requests: 0,
            last_sent: None,
            accepted_at: None,
            unclear_until: None,
            attaching_since: None,
            missing: 0,
            waiting_for: None,
            key: None,
        }
    }

    pub(super) fn has_sent_nothing(&self) -> bool {
        self.requests == 0
    }

    /// Notes that AttachVolume was sent, or is known to have been sent.
    pub(super) fn note_sent(&mut self, now: Instant) {
        self.requests += 1;
        self.last_sent = Some(now);
        self.accepted_at = None;
        self.unclear_until = None;
        self.attaching_since = None;
        self.missing = 0;
    }

    pub(super) fn note_accepted(&mut self, accepted_at: Option<Timestamp>) {
        self.accepted_at = accepted_at;
    }

    /// Notes that the answer leaves open whether EC2 accepted the request.
    pub(super) fn note_unclear(&mut self, now: Instant) {
        self.unclear_until = Some(now + LOST_AFTER);
    }

    /// Returns whether a look shows the attachment that ended before the latest request.
    fn is_previous_attachment(&self, attachment: &Attachment, now: Instant) -> bool {
        let is_older = match (self.accepted_at, attachment.attached) {
            (Some(accepted_at), Some(attached)) => {
                attached.seconds + OTHER_ATTACHMENT < accepted_at.seconds
            }
            _ => false,
        };
        is_older || self.unclear_until.is_some_and(|until| now < until)
    }

    /// Notes that the state of the volume or instance does not allow the attach now. Returns
    /// whether to wait for another state.
    pub(super) fn may_wait_for_state(&mut self, error: &Ec2Error) -> bool {
        self.waiting_for = Some(error.to_string());
        self.requests < MAX_REQUESTS
    }

    pub(super) fn overdue_failure(&self) -> Failure {
        let what = self.waiting_for.as_deref().unwrap_or("EC2 still works on it");
        Failure::pending(format!(
            "volume {} is not attached to node {} yet: {what}",
            self.pair.volume, self.pair.node
        ))
    }

    /// Evaluates one fresh look.
    pub(super) fn observe(&mut self, look: &LookResult<Volume>, now: Instant) -> AttachStep {
        match look {
            LookResult::Unknown(error) if error.is_transient() => AttachStep::Wait,
            LookResult::Unknown(error) => AttachStep::Refuse(error.into()),
            // Reads lag and have gaps: only EC2's answer to the request tells whether the volume
            // exists.
            LookResult::Absent if self.has_sent_nothing() => AttachStep::Attach,
            LookResult::Absent => {
                self.missing += 1;
                match self.missing >= NO_EFFECT_LOOKS && self.effect_is_overdue(now) {
                    true => self.attach_again(),
                    false => AttachStep::Wait,
                }
            }
            LookResult::Present(volume) => {
                self.key = volume.encrypted.then(|| volume.kms_key_id.clone().unwrap_or_default());
                match volume.attachment(&self.pair.node) {
                    Some(attachment) => self.observe_attachment(volume, attachment, now),
                    None => self.observe_no_attachment(volume, now),
                }
            }
        }
    }

    fn observe_attachment(
        &mut self,
        volume: &Volume,
        attachment: &Attachment,
        now: Instant,
    ) -> AttachStep {
        self.missing = 0;
        let elsewhere = self.others(volume).next().is_some();
        match attachment.state {
            // EC2 attaches such a volume to one instance only: this answer mixes an old state with
            // a new one.
            AttachmentState::Attached if elsewhere && !volume.multi_attach => {
                self.waiting_for = Some(format!("EC2 shows it at {} at once", holders(volume)));
                AttachStep::Wait
            }
            AttachmentState::Attached if self.is_previous_attachment(attachment, now) => {
                AttachStep::Wait
            }
            AttachmentState::Attached => AttachStep::Done(Box::new(Attached {
                device: attachment.device.clone(),
                since: attachment.attached,
                volume: volume.clone(),
            })),
            AttachmentState::Attaching => {
                let since = *self.attaching_since.get_or_insert(now);
                match now.duration_since(since) >= STUCK_AFTER {
                    true => AttachStep::Stuck,
                    false => AttachStep::Wait,
                }
            }
            AttachmentState::Detached => self.observe_no_attachment(volume, now),
            AttachmentState::Detaching | AttachmentState::Busy => {
                // The earlier request belongs to the attachment that is ending.
                self.last_sent = None;
                self.attaching_since = None;
                self.waiting_for = Some("a detach from this node has not ended".to_owned());
                AttachStep::Wait
            }
            AttachmentState::Other(_) => AttachStep::Wait,
        }
    }

    fn others<'a>(&self, volume: &'a Volume) -> impl Iterator<Item = &'a Attachment> {
        let node = self.pair.node.clone();
        volume.attachments.iter().filter(move |a| {
            a.instance.as_ref() != Some(&node) && a.state != AttachmentState::Detached
        })
    }

    fn observe_no_attachment(&mut self, volume: &Volume, now: Instant) -> AttachStep {
        let others: Vec<_> = self.others(volume).collect();
        let is_for_one_node = !(volume.multi_attach && self.is_shared);
        if is_for_one_node && !others.is_empty() {
            let is_detaching = |a: &&Attachment| {
                matches!(a.state, AttachmentState::Detaching | AttachmentState::Busy)
            };
            if others.iter().all(is_detaching) {
                self.waiting_for = Some(format!("it is being detached from {}", holders(volume)));
                return AttachStep::Wait;
            }
            return AttachStep::Refuse(Failure::new(
                Condition::PublishedElsewhere,
                format!(
                    "volume {} is attached to {}; it must be detached there before it can be attached to node {}{}",
                    self.pair.volume,
                    holders(volume),
                    self.pair.node,
                    match (volume.multi_attach, self.is_shared) {
                        (true, _) => ", because its access mode is for one node",
                        (false, true) => ", because Multi-Attach is not enabled for it",
                        (false, false) => "",
                    }
                ),
            ));
        }
        match volume.state {
            VolumeState::Available => self.attach_or_wait(now),
            VolumeState::InUse if !others.is_empty() => self.attach_or_wait(now),
            VolumeState::Creating | VolumeState::InUse | VolumeState::Other(_) => AttachStep::Wait,
            VolumeState::Deleting | VolumeState::Deleted => {
                AttachStep::Refuse(Failure::not_found("volume", &self.pair.volume))
            }
            VolumeState::Error => AttachStep::Refuse(Failure::new(
                Condition::Local,
                format!(
                    "volume {} is in state error: EC2 could not make it, and it holds no data; delete it",
                    self.pair.volume
                ),
            )),
        }
    }

    fn attach_or_wait(&mut self, now: Instant) -> AttachStep {
        if self.last_sent.is_none() {
            return AttachStep::Attach;
        }
        self.missing += 1;
        let is_lost = self.attaching_since.is_some()
            && self.missing >= LOST_LOOKS
            && self.sent_before(now, LOST_AFTER);
        let is_ineffective = self.missing >= NO_EFFECT_LOOKS && self.effect_is_overdue(now);
        if !(is_lost || is_ineffective) {
            return AttachStep::Wait;
        }
        self.attach_again()
    }

    fn attach_again(&self) -> AttachStep {
        if self.requests < MAX_REQUESTS {
            return AttachStep::Attach;
        }
        let why = match (&self.waiting_for, &self.key) {
            (Some(why), _) => why.clone(),
            // AWS KMS Developer Guide, "How unusable KMS keys affect data keys": the attachment
            // fails.
            (None, Some(key)) => format!(
                "EC2 accepted each and showed no attachment, which is how it reports an encryption \
                 key that cannot be used: check that key {key} is enabled and that its policy lets \
                 the controller's role create grants; CloudTrail has the reason"
            ),
            (None, None) => "EC2 accepted each and showed no attachment".to_owned(),
        };
        AttachStep::Refuse(Failure::pending(format!(
            "{} requests to attach volume {} to node {} had no effect: {why}",
            self.requests, self.pair.volume, self.pair.node
        )))
    }

    fn effect_is_overdue(&self, now: Instant) -> bool {
        self.sent_before(now, NO_EFFECT_AFTER)
    }

    fn sent_before(&self, now: Instant, span: Duration) -> bool {
        self.last_sent.is_none_or(|sent| now.duration_since(sent) >= span)
    }
}

#[cfg(test)]
mod tests;
