//! Which zone each resource is in, as EC2 showed it: what is read together should not fail together with another zone.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::remembered::Remembered;

/// Neither a volume nor an instance changes its zone; those that nobody asks for are forgotten.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// Zones by id. Forgetting one costs a call that is shared with other zones.
#[derive(Clone, Debug, Default)]
pub(super) struct Zones(Remembered<Arc<str>>);

impl Zones {
    /// The zone, when it was learned.
    pub(super) fn of(&self, id: &impl Display) -> Option<Arc<str>> {
        self.0.get(&id.to_string())
    }

    /// EC2 showed the resource in that zone; an empty name says nothing.
    pub(super) fn learn(&self, id: &impl Display, zone: &str) {
        if !zone.is_empty() {
            self.0.put(&id.to_string(), zone.into(), KNOWN_FOR);
        }
    }
}
