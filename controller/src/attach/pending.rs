//! The metric of detaches that do not end.

use ebs_csi_ec2::{AttachmentState, LookResult, Volume};
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::request::Pair;

/// Shows one detach as pending while this value lives, and afterwards too when the detach ran out
/// of time.
pub(super) struct PendingDetach<'a> {
    pair: &'a Pair,
    metrics: &'a Metrics,
    since: Instant,
    is_overdue: bool,
}

impl<'a> PendingDetach<'a> {
    pub(super) fn new(pair: &'a Pair, metrics: &'a Metrics) -> Self {
        Self { pair, metrics, since: Instant::now(), is_overdue: false }
    }

    /// Notes that the operation's time is over before the detach has ended.
    pub(super) fn note_overdue(&mut self) {
        self.is_overdue = true;
    }

    /// Records the state in which a look shows the attachment.
    pub(super) fn record_state(&self, look: &LookResult<Volume>) {
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
