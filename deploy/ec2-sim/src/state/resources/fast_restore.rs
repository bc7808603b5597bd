//! Fast snapshot restore of one snapshot in one zone: enabling -> optimizing -> enabled; disabling
//! -> disabled.

use crate::time::Millis;

/// Fast snapshot restore of one snapshot in one zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastRestore {
    /// The snapshot's id.
    pub snapshot: String,
    /// The name of the zone.
    pub zone: String,
    /// When the restore was requested.
    pub enabling: Millis,
    /// When `optimizing` begins.
    pub optimizing: Millis,
    /// When `enabled` begins.
    pub enabled: Millis,
    /// When disabling was requested, and when it is complete.
    pub disabled: Option<(Millis, Millis)>,
}

impl FastRestore {
    /// Returns the state at `now`.
    pub fn state(&self, now: Millis) -> &'static str {
        match self.disabled {
            Some((_, done)) if done <= now => "disabled",
            Some(_) => "disabling",
            None if self.enabled <= now => "enabled",
            None if self.optimizing <= now => "optimizing",
            None => "enabling",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_restore_state_follows_clock() {
        let mut f = FastRestore {
            snapshot: "snap-1".to_owned(),
            zone: "us-east-1a".to_owned(),
            enabling: Millis(0),
            optimizing: Millis(10),
            enabled: Millis(20),
            disabled: None,
        };
        let at = |f: &FastRestore, t| f.state(Millis(t));
        assert_eq!(
            [at(&f, 0), at(&f, 10), at(&f, 20)],
            ["enabling", "optimizing", "enabled"]
        );
        f.disabled = Some((Millis(30), Millis(40)));
        assert_eq!([at(&f, 30), at(&f, 40)], ["disabling", "disabled"]);
    }
}
