//! The facts about a node for its node-agent: what a Node says, and what the agent's pod has.

use std::collections::BTreeMap;

use ebs_csi_proto::keys::{NodeFact, topology};
use ebs_csi_wire::InstanceId;

/// Returns the value of the fact for a Node with these labels and this provider id; empty when
/// neither has it.
pub(super) fn of_node<'a>(
    fact: NodeFact,
    labels: &'a BTreeMap<String, String>,
    provider_id: &'a str,
) -> &'a str {
    let label = |key: &str| labels.get(key).map_or("", String::as_str);
    let own = fact.label().map_or("", label);
    match fact {
        NodeFact::Instance => instance_text(provider_id),
        NodeFact::Zone => {
            let all = [own, label(topology::DRIVER_ZONE), zone_of(provider_id)];
            all.into_iter().find(|zone| !zone.is_empty()).unwrap_or_default()
        }
        _ => own,
    }
}

/// Returns whether a pod with these labels and annotations has the fact.
pub(super) fn is_on_pod(
    fact: NodeFact,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> bool {
    let has = |of: &BTreeMap<String, String>, key: &str| {
        of.get(key).is_some_and(|value| !value.is_empty())
    };
    has(annotations, fact.annotation()) || fact.label().is_some_and(|key| has(labels, key))
}

/// Returns the part of a provider id (`aws:///us-east-1a/i-0123456789abcdef0`) that is the id of an
/// instance; empty when none is.
pub(super) fn instance_text(provider_id: &str) -> &str {
    let path = provider_id.strip_prefix("aws://").unwrap_or_default();
    let id = path.rsplit('/').next().unwrap_or_default();
    if id.parse::<InstanceId>().is_ok() { id } else { "" }
}

/// Returns the zone of a provider id (`aws:///us-east-1a/i-0123456789abcdef0`); empty when it has
/// none. The id of a zone (`use1-az4`), which other services write there, is not a zone's name.
fn zone_of(provider_id: &str) -> &str {
    if instance_text(provider_id).is_empty() {
        return "";
    }
    let zone = provider_id.rsplit('/').nth(1).unwrap_or_default();
    let mut parts = zone.split('-');
    let first = parts.next().unwrap_or_default();
    let is_name = first.bytes().all(|b| b.is_ascii_lowercase()) && parts.count() >= 2;
    if is_name { zone } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "aws:///us-east-1a/i-0123456789abcdef0";

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn facts_are_numbered_in_their_order() {
        for (number, fact) in NodeFact::ALL.into_iter().enumerate() {
            assert_eq!(fact as usize, number);
        }
    }

    #[test]
    fn zone_comes_from_labels_then_provider_id() {
        let kubernetes = (topology::ZONE, "us-east-1b");
        let driver = (topology::DRIVER_ZONE, "us-east-1c");
        for (labels, provider_id, want) in [
            (texts(&[kubernetes, driver]), ID, "us-east-1b"),
            (texts(&[driver]), ID, "us-east-1c"),
            (texts(&[]), ID, "us-east-1a"),
            (texts(&[]), "aws:///us-west-2-lax-1a/i-0123456789abcdef0", "us-west-2-lax-1a"),
            (texts(&[]), "aws:///use1-az4/i-0123456789abcdef0", ""),
            (texts(&[]), "aws:///us-east-1a/fargate-ip", ""),
            (texts(&[]), "aws://i-0123456789abcdef0", ""),
            (texts(&[]), "", ""),
        ] {
            let zone = of_node(NodeFact::Zone, &labels, provider_id);
            assert_eq!(zone, want, "{labels:?} {provider_id}");
        }
    }

    #[test]
    fn other_facts_have_one_source_each() {
        let labels = texts(&[
            ("topology.kubernetes.io/region", "us-east-1"),
            ("node.kubernetes.io/instance-type", "t2.micro"),
            ("topology.ebs.csi.aws.com/outpost-id", "op-1"),
        ]);
        for (fact, want) in [
            (NodeFact::Region, "us-east-1"),
            (NodeFact::Instance, "i-0123456789abcdef0"),
            (NodeFact::InstanceType, "t2.micro"),
            (NodeFact::Outpost, "op-1"),
            (NodeFact::OutpostAccount, ""),
        ] {
            assert_eq!(of_node(fact, &labels, ID), want, "{fact:?}");
        }
    }

    #[test]
    fn label_or_annotation_tells_fact_to_pod() {
        let none = texts(&[]);
        let label = texts(&[("topology.kubernetes.io/zone", "z")]);
        let annotation = texts(&[("ebs.csi.aws.com/zone", "z")]);
        let empty = texts(&[("ebs.csi.aws.com/zone", "")]);
        for (fact, labels, annotations, want) in [
            (NodeFact::Zone, &label, &none, true),
            (NodeFact::Zone, &none, &annotation, true),
            (NodeFact::Zone, &none, &none, false),
            (NodeFact::Zone, &none, &empty, false),
            (NodeFact::Instance, &label, &none, false),
        ] {
            assert_eq!(is_on_pod(fact, labels, annotations), want, "{labels:?} {annotations:?}");
        }
    }
}
