//! The zone of each resource, as EC2 showed it. Resources of different zones are read apart, so
//! that one zone's failure does not fail reads of another.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::operation::expiring_cache::ExpiringCache;

/// How long a zone is remembered. Neither a volume nor an instance changes its zone; the time limit
/// drops resources that nobody asks for.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// The zones by id. Forgetting a zone costs a call that is shared with other zones.
#[derive(Clone, Debug, Default)]
pub(in crate::ec2) struct Zones(ExpiringCache<Arc<str>>);

impl Zones {
    /// Returns the zone, when it is known.
    pub(in crate::ec2) fn of(&self, id: &impl Display) -> Option<Arc<str>> {
        self.0.get(&id.to_string())
    }

    /// Notes the zone in which EC2 showed the resource; ignores an empty name.
    pub(in crate::ec2) fn learn(&self, id: &impl Display, zone: &str) {
        if !zone.is_empty() {
            self.0.put(&id.to_string(), zone.into(), KNOWN_FOR);
        }
    }
}
