//! How many volumes the scheduler may place on the node.

use std::str::SplitWhitespace;

use ebs_csi_proto::keys::AttachLimit;

use crate::facts::NodeFacts;

pub use crate::facts::taken_slots::Attachments;
pub(crate) use crate::facts::taken_slots::{SYSFS, TakenSlots};

/// Rows of `FAMILY LIMIT KIND SIZE...`.
const TABLE: &str = include_str!("../data/attach-limits.txt");
/// The slots of a type that the table lacks: those of most Nitro types.
const USUAL: Slots = Slots { limit: 27, shared: true, listed: false };

/// The attachment slots of an instance type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// The number of slots.
    pub(crate) limit: u32,
    /// Network interfaces also use these slots.
    pub(crate) shared: bool,
    /// The number is the type's own: the devices that come with the instance are already
    /// subtracted.
    pub(crate) listed: bool,
}

/// The operator's settings for slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSettings {
    /// `--volume-attach-limit`: the answer, regardless of the table. Kubernetes reads 0 as "no
    /// limit".
    pub limit: Option<u32>,
    /// `--reserved-volume-attachments`: slots that the driver does not get; `None` counts the
    /// attached volumes.
    pub reserved: Option<u32>,
}

/// Returns the slots of an instance type: those of its row, else the usual ones.
pub(crate) fn slots(instance_type: &str) -> Slots {
    let row = instance_type.split_once('.').and_then(|(family, size)| {
        rows().find(|(of, _, sizes)| *of == family && sizes.clone().any(|listed| listed == size))
    });
    row.map_or(USUAL, |(_, slots, _)| slots)
}

/// Returns the slots of an instance: those that EC2 says, else those of its type.
fn slots_of(facts: &NodeFacts, learned: Option<&AttachLimit>) -> Slots {
    let row = slots(&facts.instance_type);
    match learned {
        // A row of the same number may have a better kind: EC2 calls some metal types shared whose
        // network interfaces take no slot.
        Some(learned) if !(row.listed && row.limit == learned.limit()) => {
            Slots { limit: learned.limit(), shared: learned.shared, listed: true }
        }
        _ => row,
    }
}

/// Returns whether the answer of `NodeGetInfo` rests on the usual slots, because the table lacks
/// the type and EC2's limit is not known.
pub(crate) fn is_guessed(
    facts: &NodeFacts,
    slot_settings: SlotSettings,
    learned: Option<&AttachLimit>,
) -> bool {
    slot_settings.limit.is_none() && !slots_of(facts, learned).listed
}

/// Returns the answer of `NodeGetInfo`: the slots, minus those of the root volume, of other
/// volumes, of further network interfaces where these share the slots, and of the devices that came
/// with an instance whose type has no row; at least 1. What is seen now takes precedence over the
/// facts from the start of the process.
pub(crate) fn max_volumes(
    facts: &NodeFacts,
    slot_settings: SlotSettings,
    learned: Option<&AttachLimit>,
    taken: &TakenSlots,
) -> u32 {
    if let Some(limit) = slot_settings.limit {
        return limit;
    }
    let slots = slots_of(facts, learned);
    let reserved = slot_settings
        .reserved
        .or(taken.foreign_volumes)
        .unwrap_or_else(|| facts.other_volumes.saturating_add(1));
    let interfaces = taken.network_interfaces.unwrap_or(facts.network_interfaces);
    let sharing = if slots.shared { interfaces.saturating_sub(1) } else { 0 };
    let own = if slots.listed { 0 } else { taken.local_devices };
    slots.limit.saturating_sub(reserved).saturating_sub(sharing).saturating_sub(own).max(1)
}

/// A line of the table: the family, the slots, and the sizes that have them.
type LimitRow = (&'static str, Slots, SplitWhitespace<'static>);

fn rows() -> impl Iterator<Item = LimitRow> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(row)
}

fn row(line: &'static str) -> Option<LimitRow> {
    let mut words = line.split_whitespace();
    let (family, limit, kind) = (words.next()?, words.next()?, words.next()?);
    let shared = match kind {
        "shared" => true,
        "dedicated" => false,
        _ => return None,
    };
    Some((family, Slots { limit: limit.parse().ok()?, shared, listed: true }, words))
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
    fn limit_table_lines_parse_with_unique_types() {
        let mut seen = std::collections::HashSet::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let (family, slots, sizes) = row(line).unwrap_or_else(|| panic!("not a row: {line}"));
            assert!(slots.limit != 0 && sizes.clone().count() > 0, "{line}");
            for size in sizes {
                assert!(seen.insert((family, size)), "{size} twice: {line}");
            }
        }
    }

    /// EC2's answers of 2026-10, and what they leave out: a Xen instance can use 39 device names,
    /// and the network interfaces of metal types take no slot where those of their family do not.
    #[test]
    fn listed_types_have_limit_of_ec2() {
        let rows = [
            ("c9g.48xlarge", 128, false),
            ("c9g.metal-48xl", 79, false),
            ("m8gb.metal-48xl", 78, false),
            ("m8gn.metal-48xl", 78, false),
            ("m8gn.48xlarge", 128, false),
            ("m8id.large", 32, false),
            ("c8ib.metal-96xl", 78, false),
            ("r8in.48xlarge", 128, false),
            ("r9gd.metal-48xl", 79, false),
            ("trn2u.48xlarge", 64, false),
            ("hpc7a.96xlarge", 27, false),
            ("m5.large", 27, true),
            ("m5d.large", 26, true),
            ("m6i.metal", 31, true),
            ("g4ad.16xlarge", 21, true),
            ("i3.metal", 27, true),
            ("i3.large", 39, false),
            ("t2.nano", 39, false),
        ];
        for (instance_type, limit, shared) in rows {
            let want = Slots { limit, shared, listed: true };
            assert_eq!(slots(instance_type), want, "{instance_type}");
        }
        for unlisted in ["z9.large", "m7i.1000xlarge", "m7i", "m7i.", ".large", ""] {
            assert_eq!(slots(unlisted), USUAL, "{unlisted}");
        }
    }

    #[test]
    fn limit_is_guessed_for_unlisted_type_alone() {
        let none = SlotSettings::default();
        let set = SlotSettings { limit: Some(5), ..none };
        let learned = learned("z9.large", 100, false);
        assert!(is_guessed(&node("z9.large", 1, 0), none, None));
        assert!(!is_guessed(&node("z9.large", 1, 0), none, Some(&learned)));
        assert!(!is_guessed(&node("z9.large", 1, 0), set, None));
        assert!(!is_guessed(&node("m5.large", 1, 0), none, None));
    }

    fn learned(instance_type: &str, limit: u32, shared: bool) -> AttachLimit {
        AttachLimit::new(limit, shared, instance_type, example().instance).unwrap()
    }

    #[test]
    fn limit_prefers_flag_then_ec2_then_table() {
        let none = SlotSettings::default();
        let flag = SlotSettings { limit: Some(5), ..none };
        let reserved = SlotSettings { reserved: Some(3), ..none };
        let of = |limit, shared| Some((limit, shared));
        // With 3 interfaces, and the root volume alone.
        let rows = [
            ("z9.large", flag, of(100, false), 5),
            ("z9.large", none, of(100, false), 99),
            ("z9.large", none, of(100, true), 97),
            ("z9.large", reserved, of(100, false), 97),
            ("z9.large", none, None, 24),
            ("m5.large", flag, of(40, true), 5),
            ("m5.large", none, of(40, true), 37),
            ("m5.large", none, of(40, false), 39),
            ("m5.large", none, None, 24),
            ("m7i.large", none, of(1, false), 1),
            ("m7i.large", none, of(1000, false), 999),
            // The row has the kind that EC2 leaves out.
            ("c9g.metal-48xl", none, of(79, true), 78),
            ("c9g.metal-48xl", none, of(80, true), 77),
        ];
        for (instance_type, slot_settings, slots, want) in rows {
            let learned = slots.map(|(limit, shared)| learned(instance_type, limit, shared));
            let facts = node(instance_type, 3, 0);
            let got = max_volumes(&facts, slot_settings, learned.as_ref(), &TakenSlots::default());
            assert_eq!(got, want, "{instance_type} {slot_settings:?} {slots:?}");
        }
        // The devices that come with an instance are in a number of its type.
        let taken = TakenSlots { local_devices: 2, ..TakenSlots::default() };
        let of = |learned| max_volumes(&node("z9.large", 1, 0), none, learned, &taken);
        assert_eq!((of(Some(&learned("z9.large", 100, false))), of(None)), (99, 24));
    }

    #[test]
    fn attach_limit_follows_instance_type_attachments_and_flags() {
        let none = SlotSettings::default();
        let reserved = |reserved| SlotSettings { reserved: Some(reserved), ..none };
        let limit = |limit| SlotSettings { limit: Some(limit), ..none };
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
            // Dedicated limits depend on the size.
            ("m7a.medium", 1, 0, none, 31),
            ("c7i.16xlarge", 8, 0, none, 47),
            ("r7iz.metal-32xl", 15, 0, none, 78),
            ("m8g.48xlarge", 15, 0, none, 127),
            ("c8gb.16xlarge", 4, 0, none, 47),
            ("r8gb.large", 3, 0, none, 31),
            ("i8ge.48xlarge", 2, 0, none, 127),
            ("c8gb.metal-48xl", 1, 0, none, 77),
            ("g6.48xlarge", 4, 0, none, 127),
            ("m7i.1000xlarge", 1, 0, none, 26),
            ("p5.48xlarge", 32, 0, none, 63),
            ("i7ie.18xlarge", 2, 0, none, 47),
            ("m8gn.48xlarge", 2, 0, none, 127),
            ("c9g.48xlarge", 15, 0, none, 127),
            ("c8i.96xlarge", 8, 0, none, 127),
            ("r8a.metal-24xl", 8, 0, none, 63),
            ("u7in-32tb.224xlarge", 15, 0, none, 127),
            ("m6i.metal", 3, 0, none, 28),
            ("inf1.xlarge", 2, 0, none, 24),
        ];
        for (instance_type, interfaces, volumes, slot_settings, want) in rows {
            let facts = node(instance_type, interfaces, volumes);
            let got = max_volumes(&facts, slot_settings, None, &TakenSlots::default());
            assert_eq!(got, want, "{facts:?} {slot_settings:?}");
        }
    }

    #[test]
    fn current_counts_override_counts_at_start() {
        let none = SlotSettings::default();
        let reserved = SlotSettings { reserved: Some(1), ..none };
        let seen = |foreign_volumes, network_interfaces, local_devices| TakenSlots {
            foreign_volumes,
            network_interfaces,
            local_devices,
        };
        let rows = [
            // Started with 2 interfaces and 1 data volume: 27 - 2 - 1.
            ("m5.large", none, seen(None, None, 0), 24),
            ("m5.large", none, seen(Some(1), Some(1), 0), 26),
            ("m5.large", none, seen(Some(4), Some(3), 0), 21),
            ("m5.large", reserved, seen(Some(4), Some(1), 0), 26),
            // The table's own number already excludes local devices; the default number does not.
            ("g4dn.xlarge", none, seen(Some(1), Some(1), 2), 24),
            ("z9.large", none, seen(Some(1), Some(1), 2), 24),
            ("m7i.large", none, seen(Some(1), Some(3), 0), 31),
        ];
        for (instance_type, slot_settings, taken, want) in rows {
            let got = max_volumes(&node(instance_type, 2, 1), slot_settings, None, &taken);
            assert_eq!(got, want, "{instance_type} {taken:?}");
        }
    }

    proptest! {
        /// Without --volume-attach-limit, no count or reservation moves the limit out of these
        /// bounds.
        #[test]
        fn computed_limit_stays_between_1_and_table_limit(
            interfaces in any::<u32>(), volumes in any::<u32>(), reserved in any::<Option<u32>>(),
            foreign_volumes in any::<Option<u32>>(), network_interfaces in any::<Option<u32>>(), local_devices in any::<u32>(),
        ) {
            for instance_type in ["m5.large", "t2.nano", "m7i.large", "mac2.metal"] {
                let facts = node(instance_type, interfaces, volumes);
                let taken = TakenSlots { foreign_volumes, network_interfaces, local_devices };
                let got = max_volumes(&facts, SlotSettings { limit: None, reserved }, None, &taken);
                prop_assert!(got >= 1 && got <= slots(instance_type).limit);
            }
        }
    }
}
