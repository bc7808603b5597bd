//! What becomes of a volume after EC2 has accepted its creation.

use std::time::Duration;

use tokio::time::Instant;

use crate::ec2::{Seen, Volume, VolumeState};

/// A volume that was never shown may only be late: reads lag behind writes.
const NEVER_SHOWN: Duration = Duration::from_secs(20);
/// A volume that was shown and then is not, so often in a row over so long, is gone.
const GONE_AFTER: Duration = Duration::from_secs(3);
const GONE_LOOKS: u32 = 3;

/// The end of a creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It can be attached, or is already.
    Ready(Volume),
    /// EC2 kept it, in the state `error`.
    Failed(Volume),
    /// EC2 dropped it: that is how it reports a key that cannot be used.
    Gone,
    /// Somebody deletes it.
    Deleted,
    /// No look has shown it yet, though it should be visible by now.
    Unseen(Box<Volume>),
}

/// Judges one fresh look after the other.
#[derive(Debug, Default)]
pub(super) struct Settling {
    shown: bool,
    absences: u32,
    absent_since: Option<Instant>,
}

impl Settling {
    /// Whether no look has shown it for so long that it is worth asking EC2 about the token.
    pub(super) fn is_unseen(&self, now: Instant) -> bool {
        let since = self.absent_since.filter(|_| !self.shown);
        self.absences >= GONE_LOOKS
            && since.is_some_and(|since| now.duration_since(since) >= GONE_AFTER)
    }

    /// The end, when this look shows it.
    pub(super) fn see(&mut self, seen: &Seen<Volume>, now: Instant) -> Option<Settled> {
        match seen {
            Seen::Unknown(_) => None,
            Seen::Absent => {
                self.absences += 1;
                let since = *self.absent_since.get_or_insert(now);
                let enough = match self.shown {
                    true => GONE_AFTER,
                    false => NEVER_SHOWN,
                };
                let gone = self.absences >= GONE_LOOKS && now.duration_since(since) >= enough;
                gone.then_some(Settled::Gone)
            }
            Seen::Present(volume) => {
                self.shown = true;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::{unknown, volume};
    use crate::ec2::Ec2ErrorKind;

    fn in_state(state: VolumeState) -> Seen<Volume> {
        Seen::Present(Volume { state, ..volume() })
    }

    #[test]
    fn each_state_has_its_end() {
        let now = Instant::now();
        let rows = [
            (in_state(VolumeState::Creating), None),
            (in_state(VolumeState::Other("new".to_owned())), None),
            (unknown(Ec2ErrorKind::NoAnswer), None),
            (Seen::Absent, None),
            (in_state(VolumeState::Available), Some("ready")),
            (in_state(VolumeState::InUse), Some("ready")),
            (in_state(VolumeState::Error), Some("failed")),
            (in_state(VolumeState::Deleting), Some("deleted")),
            (in_state(VolumeState::Deleted), Some("deleted")),
        ];
        for (seen, want) in rows {
            let end = Settling::default().see(&seen, now).map(|end| match end {
                Settled::Ready(_) => "ready",
                Settled::Failed(_) => "failed",
                Settled::Deleted => "deleted",
                Settled::Gone => "gone",
                Settled::Unseen(_) => "unseen",
            });
            assert_eq!(end, want, "{seen:?}");
        }
    }

    #[test]
    fn a_volume_is_gone_sooner_when_it_was_there() {
        let begin = Instant::now();
        let late = begin + GONE_AFTER;
        let mut shown = Settling::default();
        shown.see(&in_state(VolumeState::Creating), begin);
        for _ in 0..GONE_LOOKS {
            assert_eq!(shown.see(&Seen::Absent, begin), None);
        }
        assert!(!shown.is_unseen(late));
        assert_eq!(shown.see(&Seen::Absent, late), Some(Settled::Gone));

        let mut never = Settling::default();
        for _ in 0..GONE_LOOKS {
            never.see(&Seen::Absent, begin);
        }
        assert!(!never.is_unseen(begin));
        assert_eq!(never.see(&Seen::Absent, late), None);
        assert!(never.is_unseen(late));
        let end = never.see(&Seen::Absent, begin + NEVER_SHOWN);
        assert_eq!(end, Some(Settled::Gone));

        // It was only late.
        let mut back = Settling::default();
        back.see(&Seen::Absent, begin);
        back.see(&in_state(VolumeState::Creating), late);
        assert_eq!(back.see(&Seen::Absent, begin + NEVER_SHOWN), None);
    }
}
