//! How many volumes the scheduler may place on the node.

use crate::facts::NodeFacts;

/// Rows of `PATTERN LIMIT KIND`.
const TABLE: &str = include_str!("../data/attach-limits.txt");
/// Most Nitro types.
const USUAL: Slots = Slots {
    limit: 27,
    shared: true,
};

/// The attachment slots of an instance type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// How many.
    pub limit: u32,
    /// Network interfaces take from them, too.
    pub shared: bool,
}

/// What the operator says about slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// `--volume-attach-limit`: the answer, whatever the table says. Kubernetes reads 0 as "no limit".
    pub limit: Option<u32>,
    /// `--reserved-volume-attachments`: slots that the driver does not get; `None` counts what is attached.
    pub reserved: Option<u32>,
}

/// The slots of an instance type: its own row, else its family's, else what is usual.
#[must_use]
pub fn slots(instance_type: &str) -> Slots {
    let family = instance_type.split_once('.').map(|(family, _)| family);
    let mut of_family = None;
    for (pattern, slots) in rows() {
        if pattern == instance_type {
            return slots;
        }
        if of_family.is_none()
            && pattern
                .strip_suffix(".*")
                .is_some_and(|p| Some(p) == family)
        {
            of_family = Some(slots);
        }
    }
    of_family.unwrap_or(USUAL)
}

/// The answer of `NodeGetInfo`: the slots, less those of the root volume, of other volumes, and of further network interfaces
/// where they share; at least 1.
#[must_use]
pub fn max_volumes(facts: &NodeFacts, wishes: Wishes) -> u32 {
    if let Some(limit) = wishes.limit {
        return limit;
    }
    let Slots { limit, shared } = slots(&facts.instance_type);
    let reserved = wishes
        .reserved
        .unwrap_or_else(|| facts.other_volumes.saturating_add(1));
    let interfaces = if shared {
        facts.network_interfaces.saturating_sub(1)
    } else {
        0
    };
    limit
        .saturating_sub(reserved)
        .saturating_sub(interfaces)
        .max(1)
}

fn rows() -> impl Iterator<Item = (&'static str, Slots)> {
    TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(row)
}

fn row(line: &'static str) -> Option<(&'static str, Slots)> {
    let mut words = line.split_whitespace();
    let (pattern, limit, kind) = (words.next()?, words.next()?, words.next()?);
    let shared = match kind {
        "shared" => true,
        "dedicated" => false,
        _ => return None,
    };
    let limit = limit.parse().ok()?;
    words
        .next()
        .is_none()
        .then_some((pattern, Slots { limit, shared }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::facts::example;

    fn node(instance_type: &str, network_interfaces: u32, other_volumes: u32) -> NodeFacts {
        NodeFacts {
            instance_type: instance_type.to_owned(),
            network_interfaces,
            other_volumes,
            ..example()
        }
    }

    #[test]
    fn every_line_of_the_table_is_a_row_and_no_pattern_stands_twice() {
        let mut seen = std::collections::HashSet::new();
        for line in TABLE.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (pattern, slots) = row(line).unwrap_or_else(|| panic!("not a row: {line}"));
            assert!(slots.limit > 0, "{line}");
            assert!(seen.insert(pattern), "twice: {pattern}");
        }
    }

    #[test]
    fn known_nodes_get_their_known_limits() {
        let none = Wishes::default();
        let reserved = |reserved| Wishes {
            reserved: Some(reserved),
            ..none
        };
        let limit = |limit| Wishes {
            limit: Some(limit),
            ..none
        };
        let rows = [
            ("m5.large", 1, 0, none, 26),
            ("m5.large", 3, 0, none, 24),
            ("m5d.large", 3, 0, none, 23),
            ("t2.medium", 2, 0, none, 38),
            ("t2.medium", 2, 0, reserved(3), 36),
            ("d3.8xlarge", 1, 0, none, 2),
            ("m7i.48xlarge", 15, 0, none, 127),
            ("g5.48xlarge", 1, 0, none, 8),
            ("t3.xlarge", 40, 0, none, 1),
            ("m5.large", 1, 2, none, 24),
            ("m5.large", 1, 2, reserved(0), 27),
            ("m5.large", 9, 9, limit(0), 0),
            ("m5.large", 9, 9, limit(5), 5),
            ("i3.large", 4, 0, none, 38),
            ("i3.metal", 4, 0, none, 23),
            ("z9.unheard-of", 1, 0, none, 26),
        ];
        for (instance_type, interfaces, volumes, wishes, want) in rows {
            let facts = node(instance_type, interfaces, volumes);
            assert_eq!(max_volumes(&facts, wishes), want, "{facts:?} {wishes:?}");
        }
    }

    proptest! {
        #[test]
        fn without_an_order_the_limit_lies_between_one_and_the_tables(
            interfaces in any::<u32>(), volumes in any::<u32>(), reserved in any::<Option<u32>>(),
        ) {
            for instance_type in ["m5.large", "t2.nano", "m7i.large", "mac2.metal"] {
                let facts = node(instance_type, interfaces, volumes);
                let got = max_volumes(&facts, Wishes { limit: None, reserved });
                prop_assert!(got >= 1 && got <= slots(instance_type).limit);
            }
        }
    }
}
