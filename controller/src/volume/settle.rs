//! The state of a volume after EC2 has accepted its creation.

use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, Ec2ErrorKind, LookResult, Volume, VolumeState, WatchedChange};
use ebs_csi_proto::Failure;
use ebs_csi_wire::VolumeId;
use tokio::time::Instant;

/// A volume that is missing in this many looks in a row may be dropped, late, or hidden for a
/// while.
const HIDDEN_LOOKS: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// The volume can be attached, or is already attached.
    Ready(Volume),
    /// EC2 kept the volume, in the state `error`.
    Failed(Volume),
    Deleted,
    /// Looks do not show the volume. That proves nothing: reads lag and have gaps. EC2's answer to
    /// the client token tells whether the volume was dropped.
    Hidden(Volume),
    /// EC2 says that the client token's volume is deleted, which is how EC2 reports an encryption
    /// key that cannot be used.
    Dropped,
}

/// Evaluates successive fresh looks.
#[derive(Debug)]
pub(super) struct Settling {
    accepted: Volume,
    hidden_after: Duration,
    absences: u32,
    absent_since: Option<Instant>,
}

impl Settling {
    /// Starts with a volume as EC2 accepted it. The volume counts as hidden when no look has shown
    /// it for `hidden_after`.
    pub(super) fn new(accepted: Volume, hidden_after: Duration) -> Self {
        Self { accepted, hidden_after, absences: 0, absent_since: None }
    }

    /// Returns the outcome once a look shows it.
    pub(super) fn observe(&mut self, look: &LookResult<Volume>, now: Instant) -> Option<Settled> {
        match look {
            LookResult::Unknown(_) => None,
            LookResult::Absent => {
                self.absences += 1;
                let since = *self.absent_since.get_or_insert(now);
                let is_hidden =
                    self.absences >= HIDDEN_LOOKS && now.duration_since(since) >= self.hidden_after;
                is_hidden.then(|| Settled::Hidden(self.accepted.clone()))
            }
            LookResult::Present(volume) => {
                self.absences = 0;
                self.absent_since = None;
                match volume.state {
                    VolumeState::Available | VolumeState::InUse => {
                        Some(Settled::Ready(volume.clone()))
                    }
                    VolumeState::Error => Some(Settled::Failed(volume.clone())),
                    VolumeState::Deleting | VolumeState::Deleted => Some(Settled::Deleted),
                    VolumeState::Creating | VolumeState::Other(_) => None,
                }
            }
        }
    }
}

/// Follows a volume that was found by its name and whose client token is unknown here.
pub(super) async fn watch_adopted(
    ec2: &Ec2,
    call: &Call,
    volume: Volume,
    deadline: Instant,
) -> Result<Settled, Failure> {
    settle(ec2, call, volume, Duration::MAX, deadline).await
}

/// Follows a volume to the end of its creation, or until no look has shown it for `hidden_after`.
pub(super) async fn settle(
    ec2: &Ec2,
    call: &Call,
    volume: Volume,
    hidden_after: Duration,
    deadline: Instant,
) -> Result<Settled, Failure> {
    let id = volume.id.clone();
    // EC2 answers a repeated create with the volume's current state.
    if matches!(volume.state, VolumeState::Available | VolumeState::InUse) {
        return Ok(Settled::Ready(volume));
    }
    let mut settling = Settling::new(volume, hidden_after);
    let watched = ec2.watch_volume(call, &id, WatchedChange::Creation, deadline, |look| {
        // Watching longer would only end in a deadline that does not give the reason. The volume
        // may exist, so the condition is not final.
        if let LookResult::Unknown(error) = &look.result
            && error.kind == Ec2ErrorKind::Unauthorized
        {
            let refused = error.pending();
            return Some(Err(refused.context(format!(
                "volume {id} is accepted, and the controller's role may not see what becomes of it"
            ))));
        }
        settling.observe(&look.result, Instant::now()).map(Ok)
    });
    watched.await.unwrap_or_else(|| Err(not_ready(&id)))
}

pub(super) fn not_ready(id: &VolumeId) -> Failure {
    Failure::pending(format!(
        "volume {id} is accepted and not available yet; EC2 still works on it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::unknown;
    use crate::example::example_volume;
    use ebs_csi_ec2::Ec2ErrorKind;

    const HIDDEN: Duration = Duration::from_secs(3);

    fn in_state(state: VolumeState) -> LookResult<Volume> {
        LookResult::Present(Volume { state, ..example_volume() })
    }

    #[test]
    fn volume_state_decides_creation_outcome() {
        let now = Instant::now();
        let rows = [
            (in_state(VolumeState::Creating), None),
            (in_state(VolumeState::Other("new".to_owned())), None),
            (unknown(Ec2ErrorKind::NoAnswer), None),
            (LookResult::Absent, None),
            (in_state(VolumeState::Available), Some("ready")),
            (in_state(VolumeState::InUse), Some("ready")),
            (in_state(VolumeState::Error), Some("failed")),
            (in_state(VolumeState::Deleting), Some("deleted")),
            (in_state(VolumeState::Deleted), Some("deleted")),
        ];
        for (look, want) in rows {
            let end =
                Settling::new(example_volume(), HIDDEN).observe(&look, now).map(|end| match end {
                    Settled::Ready(_) => "ready",
                    Settled::Failed(_) => "failed",
                    Settled::Deleted => "deleted",
                    Settled::Hidden(_) => "hidden",
                    Settled::Dropped => "dropped",
                });
            assert_eq!(end, want, "{look:?}");
        }
    }

    #[test]
    fn volume_is_hidden_after_3_absences_and_delay() {
        let begin = Instant::now();
        let late = begin + HIDDEN;
        let mut settling = Settling::new(example_volume(), HIDDEN);
        settling.observe(&in_state(VolumeState::Creating), begin);
        for _ in 0..HIDDEN_LOOKS {
            assert_eq!(settling.observe(&LookResult::Absent, begin), None);
        }
        assert_eq!(
            settling.observe(&LookResult::Absent, late),
            Some(Settled::Hidden(example_volume()))
        );

        let mut back = Settling::new(example_volume(), HIDDEN);
        back.observe(&LookResult::Absent, begin);
        back.observe(&in_state(VolumeState::Creating), late);
        assert_eq!(back.observe(&LookResult::Absent, late + HIDDEN), None);
    }
}
