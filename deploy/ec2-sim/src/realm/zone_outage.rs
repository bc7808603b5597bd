//! A zone that does not answer.

use super::Realm;
use crate::error::{ApiError, ApiResult};
use crate::wire::query::Params;

impl Realm {
    /// Changes a zone's state. False if there is no such zone.
    pub fn set_zone_state(&mut self, name: &str, state: &str) -> bool {
        match self.zones.iter_mut().find(|z| z.name == name) {
            Some(z) => {
                state.clone_into(&mut z.state);
                true
            }
            None => false,
        }
    }

    /// Refuses what an unavailable zone cannot do: changes of what is in it, and listings of everything. Calls that ask for
    /// resources by id or filter are answered. Status and wording unverified.
    pub(crate) fn check_zones(&self, action: &str, params: &Params) -> ApiResult<()> {
        let down: Vec<_> = self
            .zones
            .iter()
            .filter(|z| z.state == "unavailable")
            .collect();
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
            ) && crate::actions::unfiltered(params)
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
