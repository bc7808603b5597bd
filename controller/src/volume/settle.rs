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
}

/// Judges one fresh look after the other.
#[derive(Debug, Default)]
pub(super) struct Settling {
    shown: bool,
    absences: u32,
    absent_since: Option<Instant>,
}

impl Settling {
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
