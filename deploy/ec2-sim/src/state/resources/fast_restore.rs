//! Fast snapshot restore of one snapshot in one zone: enabling -> optimizing -> enabled.

use crate::time::Millis;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FastRestore {
    pub snapshot: String,
    pub zone: String,
    /// When the restore was requested.
    pub enabling: Millis,
    /// When `optimizing` begins.
    pub optimizing: Millis,
    /// When `enabled` begins.
    pub enabled: Millis,
}

impl FastRestore {
    pub(crate) fn state(&self, now: Millis) -> &'static str {
        if self.enabled <= now {
            "enabled"
        } else if self.optimizing <= now {
            "optimizing"
        } else {
            "enabling"
        }
    }
}
