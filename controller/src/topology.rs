//! Where a volume goes, from a request's accessibility requirements, and what the answer says about where it is.

use std::collections::HashMap;

use ebs_csi_proto::csi::{Topology, TopologyRequirement};
use ebs_csi_proto::{Condition, Failure};

use crate::ec2::Caller;

/// The zone's name, on every node of Kubernetes.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The zone's name under this driver's former key; accepted, never answered.
pub const LEGACY_ZONE: &str = "topology.ebs.csi.aws.com/zone";
/// The zone's id, the same in every account.
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
const REGION: &str = "topology.ebs.csi.aws.com/region";
const PARTITION: &str = "topology.ebs.csi.aws.com/partition";
const ACCOUNT: &str = "topology.ebs.csi.aws.com/account-id";
const OUTPOST: &str = "topology.ebs.csi.aws.com/outpost-id";

/// One place, as one term of a request names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The zone by name.
    pub zone: Option<String>,
    /// The zone by id.
    pub zone_id: Option<String>,
    /// The Outpost's ARN.
    pub outpost: Option<String>,
}

impl Placement {
    fn of(term: &Topology) -> Result<Self, Failure> {
        let segment = |key: &str| {
            term.segments
                .get(key)
                .filter(|value| !value.is_empty())
                .cloned()
        };
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
        Ok(Self {
            zone,
            zone_id,
            outpost: outpost_of(term),
        })
    }

    /// Whether it names a zone, by itself or by its Outpost.
    fn names_a_place(&self) -> bool {
        self.has_zone() || self.outpost.is_some()
    }

    /// Whether it names a zone.
    pub(crate) fn has_zone(&self) -> bool {
        self.zone.is_some() || self.zone_id.is_some()
    }

    /// Whether a volume at this zone and Outpost is where the placement asks for.
    pub(crate) fn admits(&self, zone: &str, zone_id: Option<&str>, outpost: Option<&str>) -> bool {
        self.zone.as_deref().is_none_or(|wanted| wanted == zone)
            && self
                .zone_id
                .as_deref()
                .is_none_or(|wanted| Some(wanted) == zone_id)
            && self
                .outpost
                .as_deref()
                .is_none_or(|wanted| Some(wanted) == outpost)
    }
}

/// The Outpost's ARN: whole in `outpost-id`, or put together from the four segments that its nodes have.
fn outpost_of(term: &Topology) -> Option<String> {
    let segment = |key: &str| term.segments.get(key).filter(|value| !value.is_empty());
    let id = segment(OUTPOST)?;
    if id.starts_with("arn:") {
        return Some(id.clone());
    }
    let (partition, region, account) = (segment(PARTITION)?, segment(REGION)?, segment(ACCOUNT)?);
    Some(format!(
        "arn:{partition}:outposts:{region}:{account}:outpost/{id}"
    ))
}

/// Whether a term names an Outpost by its id alone: `op-…` belongs to a partition and an account that other segments, or AWS, must say.
pub(crate) fn lacks_owner(requirement: &TopologyRequirement) -> bool {
    let mut terms = requirement.preferred.iter().chain(&requirement.requisite);
    terms.any(|term| names_by_id(term) && (!has(term, PARTITION) || !has(term, ACCOUNT)))
}

/// Says of each Outpost that is named by its id what its term leaves out: it is in this Region, and the caller's own.
pub(crate) fn complete(requirement: &mut TopologyRequirement, region: &str, owner: &Caller) {
    let terms = requirement.preferred.iter_mut();
    for term in terms.chain(&mut requirement.requisite) {
        if !names_by_id(term) {
            continue;
        }
        for (key, value) in [
            (PARTITION, owner.partition.as_str()),
            (REGION, region),
            (ACCOUNT, &owner.account),
        ] {
            if !has(term, key) {
                term.segments.insert(key.to_owned(), value.to_owned());
            }
        }
    }
}

fn names_by_id(term: &Topology) -> bool {
    has(term, OUTPOST) && !term.segments[OUTPOST].starts_with("arn:")
}

fn has(term: &Topology, key: &str) -> bool {
    term.segments
        .get(key)
        .is_some_and(|value| !value.is_empty())
}

/// The term that decides: the first preferred one that names a zone or an Outpost, else the first such requisite one. One term gives zone and
/// Outpost together. `None` when the request has no terms: any zone will do.
///
/// # Errors
/// When no term names a zone or an Outpost, or the one that decides contradicts itself.
pub fn choose(requirement: Option<&TopologyRequirement>) -> Result<Option<Placement>, Failure> {
    let Some(requirement) = requirement else {
        return Ok(None);
    };
    let mut terms = requirement
        .preferred
        .iter()
        .chain(&requirement.requisite)
        .peekable();
    if terms.peek().is_none() {
        return Ok(None);
    }
    for term in terms {
        let placement = Placement::of(term)?;
        if placement.names_a_place() {
            return Ok(Some(placement));
        }
    }
    Err(Failure::invalid(
        "accessibility_requirements",
        format!(
            "no term names a zone by {ZONE} or {ZONE_ID}, or an Outpost by its whole ARN in {OUTPOST}; add one to allowedTopologies"
        ),
    ))
}

/// Checks that a volume at this place is one that the request allows.
///
/// # Errors
/// [`Condition::NoCapacityInTopology`], by which the scheduler tries elsewhere, when no requisite term admits it.
pub fn check(
    requirement: Option<&TopologyRequirement>,
    zone: &str,
    zone_id: Option<&str>,
    outpost: Option<&str>,
) -> Result<(), Failure> {
    let requisite = requirement.map_or(&[][..], |r| &r.requisite);
    let admits = |term| {
        Placement::of(term).is_ok_and(|p| p.names_a_place() && p.admits(zone, zone_id, outpost))
    };
    if requisite.is_empty() || requisite.iter().any(admits) {
        return Ok(());
    }
    Err(Failure::new(
        Condition::NoCapacityInTopology,
        format!(
            "a copy is made in its source's zone, {zone}, which is not among the requested ones"
        ),
    ))
}

/// Of several zones the one for this name: the same whenever it is asked, and spread over the names.
pub fn pick<'a>(zones: &[&'a str], name: &str) -> Option<&'a str> {
    let mut zones = zones.to_vec();
    zones.sort_unstable();
    // FNV-1a: fixed for all time, unlike the standard library's hasher.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let at = usize::try_from(hash % u64::try_from(zones.len()).ok()?.max(1)).ok()?;
    zones.get(at).copied()
}

/// What the answer says: the zone that EC2 reports, and the Outpost's segments.
pub fn of_volume(zone: &str, outpost: Option<&str>) -> Topology {
    let mut segments = HashMap::from([(ZONE.to_owned(), zone.to_owned())]);
    let parts: Vec<_> = outpost.map_or(Vec::new(), |arn| arn.splitn(6, ':').collect());
    if let ["arn", partition, "outposts", region, account, resource] = parts[..]
        && let Some(id) = resource.strip_prefix("outpost/")
    {
        for (key, value) in [
            (REGION, region),
            (PARTITION, partition),
            (ACCOUNT, account),
            (OUTPOST, id),
        ] {
            segments.insert(key.to_owned(), value.to_owned());
        }
    }
    Topology { segments }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn term(segments: &[(&str, &str)]) -> Topology {
        Topology {
            segments: segments
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        }
    }

    fn requirement(preferred: Vec<Topology>, requisite: Vec<Topology>) -> TopologyRequirement {
        TopologyRequirement {
            requisite,
            preferred,
        }
    }

    const ARN: &str = "arn:aws:outposts:us-east-1:111122223333:outpost/op-0aaaaaaaaaaaaaaa1";

    #[test]
    fn one_term_decides_and_preferred_ones_come_first() {
        let at = |zone: &str| Placement {
            zone: Some(zone.to_owned()),
            ..Default::default()
        };
        let rows = [
            (
                vec![term(&[(ZONE, "b")])],
                vec![term(&[(ZONE, "a")]), term(&[(ZONE, "b")])],
                at("b"),
            ),
            (vec![], vec![term(&[(LEGACY_ZONE, "a")])], at("a")),
            (
                vec![term(&[("kubernetes.io/os", "linux")])],
                vec![term(&[(ZONE, "c")])],
                at("c"),
            ),
            (
                vec![term(&[(ZONE, "a"), (LEGACY_ZONE, "old")])],
                vec![],
                at("a"),
            ),
            (
                vec![term(&[(ZONE_ID, "use1-az6")]), term(&[(ZONE, "a")])],
                vec![],
                Placement {
                    zone_id: Some("use1-az6".to_owned()),
                    ..Default::default()
                },
            ),
            (
                vec![term(&[(ZONE, "a"), (OUTPOST, ARN)])],
                vec![],
                Placement {
                    outpost: Some(ARN.to_owned()),
                    ..at("a")
                },
            ),
            (
                vec![term(&[
                    (ZONE, "a"),
                    (OUTPOST, "op-0aaaaaaaaaaaaaaa1"),
                    (REGION, "us-east-1"),
                    (PARTITION, "aws"),
                    (ACCOUNT, "111122223333"),
                ])],
                vec![],
                Placement {
                    outpost: Some(ARN.to_owned()),
                    ..at("a")
                },
            ),
            // An Outpost lies in one zone, which its ARN alone does not say.
            (
                vec![term(&[(OUTPOST, ARN)])],
                vec![term(&[(ZONE, "a")])],
                Placement {
                    outpost: Some(ARN.to_owned()),
                    ..Default::default()
                },
            ),
            // An Outpost of one term does not go with the zone of another.
            (
                vec![term(&[(ZONE, "a")]), term(&[(ZONE, "b"), (OUTPOST, ARN)])],
                vec![],
                at("a"),
            ),
        ];
        for (preferred, requisite, want) in rows {
            let given = requirement(preferred, requisite);
            assert_eq!(choose(Some(&given)), Ok(Some(want)), "{given:?}");
        }
    }

    #[test]
    fn no_terms_mean_any_zone_and_terms_without_a_zone_are_an_error() {
        assert_eq!(choose(None), Ok(None));
        assert_eq!(choose(Some(&requirement(vec![], vec![]))), Ok(None));
        for bad in [
            term(&[("kubernetes.io/os", "linux")]),
            term(&[(OUTPOST, "op-0aaaaaaaaaaaaaaa1")]),
            term(&[(ZONE, "a"), (ZONE_ID, "use1-az6")]),
            term(&[(ZONE, "")]),
        ] {
            let failure = choose(Some(&requirement(vec![], vec![bad]))).unwrap_err();
            assert_eq!(failure.condition(), Condition::InvalidField);
        }
    }

    #[test]
    fn a_copy_must_lie_in_a_requisite_term() {
        let rows = [
            (vec![], true),
            (vec![term(&[(ZONE, "b")]), term(&[(ZONE, "a")])], true),
            (vec![term(&[(LEGACY_ZONE, "a")])], true),
            (vec![term(&[(ZONE_ID, "use1-az6")])], true),
            (vec![term(&[(ZONE, "b")])], false),
            (vec![term(&[(ZONE_ID, "use1-az1")])], false),
            (vec![term(&[(ZONE, "a"), (OUTPOST, ARN)])], false),
        ];
        for (requisite, ok) in rows {
            let given = requirement(vec![], requisite);
            let answer = check(Some(&given), "a", Some("use1-az6"), None);
            assert_eq!(answer.is_ok(), ok, "{given:?}");
            if let Err(failure) = answer {
                assert_eq!(failure.condition(), Condition::NoCapacityInTopology);
            }
        }
        let on_outpost = requirement(vec![], vec![term(&[(ZONE, "a"), (OUTPOST, ARN)])]);
        assert!(check(Some(&on_outpost), "a", None, Some(ARN)).is_ok());
    }

    #[test]
    fn an_outposts_id_is_completed_by_region_and_account_and_by_nothing_that_is_said_otherwise() {
        let owner = Caller {
            account: "111122223333".to_owned(),
            arn: "arn:aws-us-gov:iam::111122223333:role/ebs".to_owned(),
            partition: "aws-us-gov".to_owned(),
        };
        const ID: &str = "op-0aaaaaaaaaaaaaaa1";
        for (given, lacking, arn) in [
            (
                vec![(OUTPOST, ID)],
                true,
                Some(
                    "arn:aws-us-gov:outposts:us-gov-west-1:111122223333:outpost/op-0aaaaaaaaaaaaaaa1",
                ),
            ),
            (
                vec![(OUTPOST, ID), (ACCOUNT, "444455556666"), (PARTITION, "")],
                true,
                Some(
                    "arn:aws-us-gov:outposts:us-gov-west-1:444455556666:outpost/op-0aaaaaaaaaaaaaaa1",
                ),
            ),
            (
                vec![
                    (OUTPOST, ID),
                    (ACCOUNT, "444455556666"),
                    (PARTITION, "aws"),
                    (REGION, "eu-west-1"),
                ],
                false,
                Some("arn:aws:outposts:eu-west-1:444455556666:outpost/op-0aaaaaaaaaaaaaaa1"),
            ),
            (vec![(OUTPOST, ARN)], false, Some(ARN)),
            (vec![(ZONE, "a")], false, None),
        ] {
            for mut requirement in [
                requirement(vec![term(&given)], vec![]),
                requirement(vec![], vec![term(&given)]),
            ] {
                assert_eq!(lacks_owner(&requirement), lacking, "{given:?}");
                complete(&mut requirement, "us-gov-west-1", &owner);
                let chosen = choose(Some(&requirement)).unwrap().unwrap();
                assert_eq!(chosen.outpost.as_deref(), arn, "{given:?}");
            }
        }
    }

    #[test]
    fn the_answer_has_the_zone_and_the_outposts_segments() {
        assert_eq!(of_volume("us-east-1a", None), term(&[(ZONE, "us-east-1a")]));
        let on_outpost = of_volume("us-east-1a", Some(ARN));
        assert_eq!(on_outpost.segments.len(), 5);
        assert_eq!(on_outpost.segments[OUTPOST], "op-0aaaaaaaaaaaaaaa1");
        // What we answer, we accept.
        assert_eq!(
            choose(Some(&requirement(vec![on_outpost], vec![])))
                .unwrap()
                .unwrap()
                .outpost
                .as_deref(),
            Some(ARN)
        );
        assert_eq!(of_volume("z", Some("not an arn")).segments.len(), 1);
    }

    proptest! {
        #[test]
        fn the_zone_for_a_name_does_not_depend_on_the_order_of_zones(name in ".{0,40}", mut zones in proptest::collection::vec("[a-z]{1,4}", 1..6)) {
            let refs: Vec<&str> = zones.iter().map(String::as_str).collect();
            let first = pick(&refs, &name).map(str::to_owned);
            prop_assert!(first.is_some());
            zones.reverse();
            let refs: Vec<&str> = zones.iter().map(String::as_str).collect();
            prop_assert_eq!(pick(&refs, &name).map(str::to_owned), first);
        }
    }

    #[test]
    fn names_spread_over_the_zones() {
        let zones = ["a", "b", "c"];
        let mut counts = HashMap::new();
        for n in 0..300 {
            *counts.entry(pick(&zones, &format!("pvc-{n}"))).or_insert(0) += 1;
        }
        assert!(counts.values().all(|n| *n > 60), "{counts:?}");
        assert_eq!(pick(&[], "x"), None);
    }
}
