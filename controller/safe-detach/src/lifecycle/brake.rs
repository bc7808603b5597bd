//! Limits the number of nodes that may be acted on: a fault of the control plane, or of a whole
//! zone, must not look like many dead nodes.

use std::collections::{BTreeMap, BTreeSet};

use ebs_csi_wire::listed_enum;

/// The brake's view of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// The node's name.
    pub name: String,
    /// The node's zone; empty when it is unknown, as for a node whose object is gone.
    pub zone: String,
    /// Whether the node is not Ready, or its object is gone.
    pub suspect: bool,
    /// Whether the node was acted on within the window: it has been counted, and may be finished.
    pub acted: bool,
    /// Whether something is to be done for the node.
    pub wanted: bool,
}

/// The nodes that the brake admits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// The nodes that may be acted on now.
    pub nodes: BTreeSet<String>,
    /// The nodes that must wait, and why.
    pub held: BTreeMap<String, HoldReason>,
}

listed_enum! {
    /// The reason why a node must wait: the stable token of events and metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum HoldReason with pub fn token -> &'static str {
        /// So many nodes are suspect that a fault of the control plane is more likely.
        Outage = "outage",
        /// As many nodes as the cluster's share have been acted on within the window.
        ClusterShare = "cluster-share",
        /// As many nodes as the zone's share have been acted on within the window.
        ZoneShare = "zone-share",
    }
}

#[derive(Default)]
struct Zone {
    nodes: usize,
    suspects: usize,
    acted: usize,
}

/// Returns which of the nodes may be acted on.
///
/// Within the window (its length is the caller's choice), these are at most one in twenty of the
/// nodes, and one in three of a zone, each at least one. None is admitted when more than half of
/// the nodes of every zone are suspect; that rule does not apply to a cluster of one zone with one
/// or two nodes.
pub fn admit(all: &[NodeState]) -> Admitted {
    let mut zones: BTreeMap<&str, Zone> = BTreeMap::new();
    for node in all {
        let zone = zones.entry(&node.zone).or_default();
        zone.nodes += 1;
        zone.suspects += usize::from(node.suspect);
        zone.acted += usize::from(node.acted);
    }
    let is_outage = is_outage(&zones);
    let mut acted: usize = zones.values().map(|zone| zone.acted).sum();
    let mut wanted: Vec<&NodeState> = all.iter().filter(|node| node.wanted).collect();
    // The same order in every process and at every start.
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut admitted = Admitted::default();
    for node in wanted {
        let zone = zones.entry(&node.zone).or_default();
        let held = match node.acted {
            _ if is_outage => Some(HoldReason::Outage),
            true => None,
            false if acted >= (all.len() / 20).max(1) => Some(HoldReason::ClusterShare),
            false if zone.acted >= (zone.nodes / 3).max(1) => Some(HoldReason::ZoneShare),
            false => {
                acted += 1;
                zone.acted += 1;
                None
            }
        };
        match held {
            Some(why) => drop(admitted.held.insert(node.name.clone(), why)),
            None => drop(admitted.nodes.insert(node.name.clone())),
        }
    }
    admitted
}

fn is_outage(zones: &BTreeMap<&str, Zone>) -> bool {
    // A node without a zone shows nothing about any zone.
    let mut known = zones.iter().filter(|(name, _)| !name.is_empty() || zones.len() == 1);
    let has_several_zones = known.clone().count() > 1;
    known.all(|(_, zone)| zone.suspects * 2 > zone.nodes && (has_several_zones || zone.nodes > 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the nodes of zones, each given as `zone, nodes, suspects, acted, wanted`. The
    /// suspects are the first nodes of a zone; the nodes that were acted on are the first of the
    /// suspects.
    fn cluster(zones: &[(&str, usize, usize, usize, usize)]) -> Vec<NodeState> {
        let nodes = zones.iter().flat_map(|(zone, nodes, suspects, acted, wanted)| {
            (0..*nodes).map(move |number| NodeState {
                name: format!("{zone}-{number:04}"),
                zone: (*zone).to_owned(),
                suspect: number < *suspects,
                acted: number < *acted,
                wanted: number >= *acted && number < acted + wanted,
            })
        });
        nodes.collect()
    }

    #[test]
    fn brake_limits_nodes_by_share_and_outage() {
        use HoldReason::{ClusterShare, Outage, ZoneShare};
        let one_zone = [("a", 10, 6, 0, 6), ("b", 10, 0, 0, 0), ("c", 10, 0, 0, 0)];
        type Zones<'a> = &'a [(&'a str, usize, usize, usize, usize)];
        let rows: [(&str, Zones<'_>, usize, Option<HoldReason>); 11] = [
            ("one dead of three", &[("a", 3, 1, 0, 1)], 1, None),
            ("one dead of two", &[("a", 2, 1, 0, 1)], 1, None),
            ("both dead of two, one at a time", &[("a", 2, 2, 0, 2)], 1, Some(ClusterShare)),
            ("two dead of three: an outage", &[("a", 3, 2, 0, 2)], 0, Some(Outage)),
            ("F40: 60 % of one zone of three", &one_zone, 1, Some(ClusterShare)),
            ("F41: all of all", &[("a", 10, 10, 0, 10), ("b", 10, 10, 0, 10)], 0, Some(Outage)),
            ("more than half of all", &[("a", 4, 3, 0, 1), ("b", 4, 3, 0, 1)], 0, Some(Outage)),
            ("half of every zone", &[("a", 4, 2, 0, 1), ("b", 4, 2, 0, 0)], 1, None),
            ("the window is used up", &[("a", 20, 2, 1, 1)], 0, Some(ClusterShare)),
            ("5 % of 100", &[("a", 100, 9, 0, 9)], 5, Some(ClusterShare)),
            ("third of a small zone", &[("a", 6, 3, 0, 3), ("b", 94, 0, 0, 0)], 2, Some(ZoneShare)),
        ];
        for (name, zones, count, held) in rows {
            let admitted = admit(&cluster(zones));
            assert_eq!(admitted.nodes.len(), count, "{name}");
            assert_eq!(admitted.held.values().next().copied(), held, "{name}");
        }
    }

    #[test]
    fn begun_node_is_admitted_and_not_counted_twice() {
        let mut all = cluster(&[("a", 20, 2, 1, 1)]);
        all[0].wanted = true;
        let admitted = admit(&all);
        assert!(admitted.nodes.contains("a-0000"));
        assert_eq!(admitted.nodes.len(), 1);
    }
}
