//! Chooses a volume's place from a request's accessibility requirements, and builds the topology of
//! the response.

use std::collections::HashMap;

use ebs_csi_ec2::{CallerIdentity, Volume};
use ebs_csi_proto::csi::{Topology, TopologyRequirement};
pub(crate) use ebs_csi_proto::keys::topology::ZONE;
// The driver's former key of the zone is accepted, and never returned.
use ebs_csi_proto::keys::topology::DRIVER_ZONE as LEGACY_ZONE;
use ebs_csi_proto::keys::topology::{
    OUTPOST_ACCOUNT as ACCOUNT, OUTPOST_ID as OUTPOST, OUTPOST_PARTITION as PARTITION,
    OUTPOST_REGION as REGION,
};
use ebs_csi_proto::{Condition, Failure};

/// The key of the zone's id, which is the same in every account.
const ZONE_ID: &str = "topology.k8s.aws/zone-id";

/// A place, as one term of a request names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Placement {
    pub zone: Option<String>,
    pub zone_id: Option<String>,
    /// The Outpost's ARN.
    pub outpost: Option<String>,
}

impl Placement {
    fn of(term: &Topology) -> Result<Self, Failure> {
        let segment = |key: &str| term.segments.get(key).filter(|value| !value.is_empty()).cloned();
        let zone = segment(ZONE).or_else(|| segment(LEGACY_ZONE));
        let zone_id = segment(ZONE_ID);
        if zone.is_some() && zone_id.is_some() {
            return Err(Failure::invalid(
                "accessibility_requirements",
                format!(
                    "a term has both {ZONE} and {ZONE_ID}, and EC2 takes only one of them; keep one"
                ),
            ));
        }
        Ok(Self { zone, zone_id, outpost: outpost_of(term) })
    }

    pub(crate) fn of_volume(volume: &Volume) -> Self {
        Self { zone: Some(volume.zone.clone()), zone_id: None, outpost: volume.outpost_arn.clone() }
    }

    /// Returns whether the placement names a zone, directly or by its Outpost.
    fn names_a_place(&self) -> bool {
        self.has_zone() || self.outpost.is_some()
    }

    pub(crate) fn has_zone(&self) -> bool {
        self.zone.is_some() || self.zone_id.is_some()
    }

    /// Returns whether a volume at this zone and Outpost is where the placement asks for.
    pub(crate) fn admits(&self, zone: &str, zone_id: Option<&str>, outpost: Option<&str>) -> bool {
        self.zone.as_deref().is_none_or(|wanted| wanted == zone)
            && self.zone_id.as_deref().is_none_or(|wanted| Some(wanted) == zone_id)
            && self.outpost.as_deref().is_none_or(|wanted| Some(wanted) == outpost)
    }
}

/// Returns the Outpost's ARN: `outpost-id` itself when it is an ARN, otherwise composed of the four
/// segments of the Outpost's nodes.
fn outpost_of(term: &Topology) -> Option<String> {
    let segment = |key: &str| term.segments.get(key).filter(|value| !value.is_empty());
    let id = segment(OUTPOST)?;
    if id.starts_with("arn:") {
        return Some(id.clone());
    }
    let (partition, region, account) = (segment(PARTITION)?, segment(REGION)?, segment(ACCOUNT)?);
    Some(format!("arn:{partition}:outposts:{region}:{account}:outpost/{id}"))
}

/// Returns whether a term names an Outpost by its id alone. `op-…` belongs to a partition and an
/// account, which other segments, or AWS, must supply.
pub(crate) fn lacks_owner(requirement: &TopologyRequirement) -> bool {
    let mut terms = requirement.preferred.iter().chain(&requirement.requisite);
    terms.any(|term| has_outpost_id_only(term) && (!has(term, PARTITION) || !has(term, ACCOUNT)))
}

/// Adds the missing segments of each Outpost that is named by its id: the Outpost is in this
/// Region, and the caller's own.
pub(crate) fn complete_outposts(
    requirement: &mut TopologyRequirement,
    region: &str,
    owner: &CallerIdentity,
) {
    let terms = requirement.preferred.iter_mut();
    for term in terms.chain(&mut requirement.requisite) {
        if !has_outpost_id_only(term) {
            continue;
        }
        for (key, value) in
            [(PARTITION, owner.partition.as_str()), (REGION, region), (ACCOUNT, &owner.account)]
        {
            if !has(term, key) {
                term.segments.insert(key.to_owned(), value.to_owned());
            }
        }
    }
}

fn has_outpost_id_only(term: &Topology) -> bool {
    has(term, OUTPOST) && !term.segments[OUTPOST].starts_with("arn:")
}

fn has(term: &Topology, key: &str) -> bool {
    term.segments.get(key).is_some_and(|value| !value.is_empty())
}

/// Returns the place of the first preferred term that names a zone or an Outpost, otherwise of the
/// first such requisite term. The same term gives both the zone and the Outpost. `None` when no
/// term names either: any zone is suitable, as for the Go driver.
///
/// # Errors
/// A chosen term that contradicts itself, or that names an Outpost whose owner is unknown.
pub(crate) fn choose(
    requirement: Option<&TopologyRequirement>,
) -> Result<Option<Placement>, Failure> {
    let Some(requirement) = requirement else {
        return Ok(None);
    };
    for term in requirement.preferred.iter().chain(&requirement.requisite) {
        let placement = Placement::of(term)?;
        if placement.names_a_place() {
            return Ok(Some(placement));
        }
        if has(term, OUTPOST) {
            return Err(Failure::invalid(
                "accessibility_requirements",
                format!(
                    "{:?} is an Outpost without the partition, Region and account that its ARN \
                     needs; give the whole ARN in {OUTPOST}",
                    term.segments[OUTPOST]
                ),
            ));
        }
    }
    Ok(None)
}

/// Checks that the request allows a volume at this place.
///
/// # Errors
/// [`Condition::NoCapacityInTopology`] when no requisite term admits the place; the scheduler then
/// tries another one.
pub(crate) fn check(
    requirement: Option<&TopologyRequirement>,
    zone: &str,
    zone_id: Option<&str>,
    outpost: Option<&str>,
) -> Result<(), Failure> {
    let requisite = requirement.map_or(&[][..], |r| &r.requisite);
    let mut places = requisite
        .iter()
        .filter_map(|term| Placement::of(term).ok())
        .filter(Placement::names_a_place)
        .peekable();
    if places.peek().is_none() || places.any(|place| place.admits(zone, zone_id, outpost)) {
        return Ok(());
    }
    Err(Failure::new(
        Condition::NoCapacityInTopology,
        format!(
            "a copy is made in its source's zone, {zone}, which is not among the requested ones"
        ),
    ))
}

/// Returns one of several zones for this name: always the same for a name, and distributed over the
/// names.
pub(crate) fn choose_zone<'a>(zones: &[&'a str], name: &str) -> Option<&'a str> {
    let mut zones = zones.to_vec();
    zones.sort_unstable();
    // FNV-1a, which never changes, unlike the standard library's hasher.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let at = usize::try_from(hash % u64::try_from(zones.len()).ok()?.max(1)).ok()?;
    zones.get(at).copied()
}

/// Returns the topology of the response: the zone that EC2 reports, and the Outpost's segments.
pub(crate) fn of_volume(zone: &str, outpost: Option<&str>) -> Topology {
    let mut segments = HashMap::from([(ZONE.to_owned(), zone.to_owned())]);
    let parts: Vec<_> = outpost.map_or(Vec::new(), |arn| arn.splitn(6, ':').collect());
    if let ["arn", partition, "outposts", region, account, resource] = parts[..]
        && let Some(id) = resource.strip_prefix("outpost/")
    {
        for (key, value) in
            [(REGION, region), (PARTITION, partition), (ACCOUNT, account), (OUTPOST, id)]
        {
            segments.insert(key.to_owned(), value.to_owned());
        }
    }
    Topology { segments }
}

#[cfg(test)]
mod tests;
