//! What this process did to a pair a moment ago.
//!
//! Reads lag behind writes. A late read shows the state before the write: an attachment that has
//! ended, or none where one has begun. Neither may end an operation that came after the write.

use std::time::Duration;

use ebs_csi_ec2::{AttachmentState, ExpiringCache, LookResult, READ_LAG, Timestamp, Volume};

use crate::request::Pair;

/// How long a proved detachment is remembered: longer than external-attacher's longest pause
/// between two calls (`--retry-interval-max`, 5 min).
const PROOF_TTL: Duration = Duration::from_secs(600);

/// The pairs with a recent write. Forgetting them, as a new process does, is safe once the lag has
/// passed.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentChanges {
    /// The attach time of each ended attachment, which identifies the attachment in a look.
    ended: ExpiringCache<Option<Timestamp>>,
    detached: ExpiringCache<()>,
}

impl RecentChanges {
    /// Notes that the attachment made at `attached` was seen to have ended.
    pub(super) fn note_ended(&self, pair: &Pair, attached: Option<Timestamp>) {
        self.ended.put(&pair.to_string(), attached, READ_LAG);
    }

    /// Notes that EC2 proved that the volume is not attached to the node.
    pub(super) fn note_detached(&self, pair: &Pair) {
        self.detached.put(&pair.to_string(), (), PROOF_TTL);
    }

    /// Removes that proof: this process begins an attach of the pair.
    pub(super) fn note_attach_begins(&self, pair: &Pair) {
        self.detached.remove(&pair.to_string());
    }

    /// Returns whether EC2 proved that the volume is detached, since when only another process can
    /// have attached the volume.
    pub(super) fn was_detached(&self, pair: &Pair) -> bool {
        self.detached.get(&pair.to_string()).is_some()
    }

    /// Returns the look with each attachment that has ended since shown as `detaching` instead.
    pub(super) fn correct(&self, look: &LookResult<Volume>) -> LookResult<Volume> {
        let mut corrected = look.clone();
        if let LookResult::Present(volume) = &mut corrected {
            for attachment in &mut volume.attachments {
                let Some(node) = &attachment.instance else {
                    continue;
                };
                let pair = Pair { volume: volume.id.clone(), node: node.clone() };
                let ended = self.ended.get(&pair.to_string());
                let is_same =
                    ended.is_some_and(|time| time.is_none() || time == attachment.attached);
                if is_same && attachment.state != AttachmentState::Detached {
                    attachment.state = AttachmentState::Detaching;
                }
            }
        }
        corrected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::{attach_time, attachment, node, pair};
    use crate::example::example_volume;
    use ebs_csi_ec2::Attachment;

    fn attached_at(seconds: i64) -> LookResult<Volume> {
        LookResult::Present(Volume {
            attachments: vec![Attachment {
                attached: attach_time(seconds),
                ..attachment(node(), AttachmentState::Attached)
            }],
            ..example_volume()
        })
    }

    fn state(look: &LookResult<Volume>) -> AttachmentState {
        look.present().unwrap().attachments[0].state.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn ended_attachment_shows_detaching_during_read_lag() {
        let recent = RecentChanges::default();
        recent.note_ended(&pair(), attach_time(5));
        let look = |seconds| state(&recent.correct(&attached_at(seconds)));
        assert_eq!(look(5), AttachmentState::Detaching);
        // Another attachment of the same pair.
        assert_eq!(look(6), AttachmentState::Attached);
        tokio::time::advance(READ_LAG).await;
        assert_eq!(look(5), AttachmentState::Attached);
    }
}
