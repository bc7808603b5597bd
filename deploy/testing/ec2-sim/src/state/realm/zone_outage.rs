//! Outage of a zone.

use super::Realm;
use crate::state::resources::ZoneState;
use crate::wire::{ApiError, ApiResult, Params};

impl Realm {
    /// Refuses calls that an unavailable zone cannot answer: changes of resources in the zone, and
    /// reads.
    ///
    /// EC2's API reference says about DescribeInstances that calls without instance ids, or with
    /// ids of the affected zone, may fail, and that calls with only ids of other zones work. In the
    /// simulator the former always fail, and so do the corresponding calls for volumes. Status and
    /// wording unverified.
    pub(crate) fn check_zones(&self, action: &str, params: &Params) -> ApiResult<()> {
        let down: Vec<_> =
            self.zones.iter().filter(|z| z.state == ZoneState::Unavailable).collect();
        if down.is_empty() {
            return Ok(());
        }
        let is_down = |zone: &str| down.iter().any(|z| z.name == zone || z.id == zone);
        let refused = if action.starts_with("Describe") {
            matches!(
                action,
                "DescribeInstances"
                    | "DescribeInstanceStatus"
                    | "DescribeVolumes"
                    | "DescribeVolumeStatus"
                    | "DescribeVolumesModifications"
            ) && {
                let mut ids = params
                    .pairs()
                    .filter(|(k, _)| k.starts_with("InstanceId.") || k.starts_with("VolumeId."))
                    .peekable();
                ids.peek().is_none() || ids.any(|(_, id)| self.zone_of(id).is_some_and(is_down))
            }
        } else {
            params.pairs().any(|(_, v)| match self.zone_of(v) {
                Some(zone) => is_down(zone),
                None => is_down(v),
            })
        };
        if refused {
            return Err(ApiError::new(
                503,
                "Unavailable",
                "The server is overloaded and can't handle the request.",
            ));
        }
        Ok(())
    }

    fn zone_of(&self, id: &str) -> Option<&str> {
        if let Some(v) = self.volumes.get(id) {
            return Some(&v.zone);
        }
        Some(&self.instances.get(id)?.zone)
    }
}
