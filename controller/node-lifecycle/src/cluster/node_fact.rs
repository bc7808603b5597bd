//! The facts about a node that the node-agent needs, and that its pod may lack.

use std::collections::BTreeMap;

use ebs_csi_wire::InstanceId;

/// A fact, whose value the agent reads from its pod's labels and annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeFact {
    /// The availability zone.
    Zone,
    /// The region.
    Region,
    /// The EC2 instance.
    Instance,
    /// The instance type.
    InstanceType,
    /// The partition of an Outpost.
    OutpostPartition,
    /// The region of an Outpost.
    OutpostRegion,
    /// The account of an Outpost.
    OutpostAccount,
    /// The Outpost.
    Outpost,
}

/// All facts, in the order of their numbers.
pub(crate) const FACTS: [NodeFact; 8] = [
    NodeFact::Zone,
    NodeFact::Region,
    NodeFact::Instance,
    NodeFact::InstanceType,
    NodeFact::OutpostPartition,
    NodeFact::OutpostRegion,
    NodeFact::OutpostAccount,
    NodeFact::Outpost,
];

/// The label of a node by which the driver itself names the zone.
const DRIVER_ZONE: &str = "topology.ebs.csi.aws.com/zone";

impl NodeFact {
    /// Returns the annotation of the pod, and the label of the Node, where there is one. Kubernetes
    /// may have copied the label to the pod.
    const fn keys(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Zone => ("ebs.csi.aws.com/zone", Some("topology.kubernetes.io/zone")),
            Self::Region => ("ebs.csi.aws.com/region", Some("topology.kubernetes.io/region")),
            Self::Instance => ("ebs.csi.aws.com/instance-id", None),
            Self::InstanceType => {
                ("ebs.csi.aws.com/instance-type", Some("node.kubernetes.io/instance-type"))
            }
            Self::OutpostPartition => both("topology.ebs.csi.aws.com/partition"),
            Self::OutpostRegion => both("topology.ebs.csi.aws.com/region"),
            Self::OutpostAccount => both("topology.ebs.csi.aws.com/account-id"),
            Self::Outpost => both("topology.ebs.csi.aws.com/outpost-id"),
        }
    }

    pub(crate) const fn annotation(self) -> &'static str {
        self.keys().0
    }

    /// Returns the value for a Node with these labels and this provider id; empty when neither
    /// has it.
    pub(super) fn of_node<'a>(
        self,
        labels: &'a BTreeMap<String, String>,
        provider_id: &'a str,
    ) -> &'a str {
        let label = |key: &str| labels.get(key).map_or("", String::as_str);
        let own = self.keys().1.map_or("", label);
        match self {
            Self::Instance => instance_text(provider_id),
            Self::Zone => {
                let all = [own, label(DRIVER_ZONE), zone_of(provider_id)];
                let mut all = all.into_iter().filter(|zone| !zone.is_empty());
                all.next().unwrap_or_default()
            }
            _ => own,
        }
    }

    /// Returns whether a pod with these labels and annotations has the fact.
    pub(super) fn is_on_pod(
        self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> bool {
        let has = |of: &BTreeMap<String, String>, key: &str| {
            of.get(key).is_some_and(|value| !value.is_empty())
        };
        let (annotation, label) = self.keys();
        has(annotations, annotation) || label.is_some_and(|key| has(labels, key))
    }
}

const fn both(key: &'static str) -> (&'static str, Option<&'static str>) {
    (key, Some(key))
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
        for (number, fact) in FACTS.into_iter().enumerate() {
            assert_eq!(fact as usize, number);
        }
    }

    #[test]
    fn zone_comes_from_labels_then_provider_id() {
        let kubernetes = ("topology.kubernetes.io/zone", "us-east-1b");
        let driver = (DRIVER_ZONE, "us-east-1c");
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
            let zone = NodeFact::Zone.of_node(&labels, provider_id);
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
            assert_eq!(fact.of_node(&labels, ID), want, "{fact:?}");
        }
    }

    #[test]
    fn label_or_annotation_tells_fact_to_pod() {
        let none = texts(&[]);
        let label = texts(&[("topology.kubernetes.io/zone", "z")]);
        let annotation = texts(&[("ebs.csi.aws.com/zone", "z")]);
        assert!(NodeFact::Zone.is_on_pod(&label, &none));
        assert!(NodeFact::Zone.is_on_pod(&none, &annotation));
        assert!(!NodeFact::Zone.is_on_pod(&none, &none));
        assert!(!NodeFact::Zone.is_on_pod(&none, &texts(&[("ebs.csi.aws.com/zone", "")])));
        assert!(!NodeFact::Instance.is_on_pod(&label, &none));
    }
}
