//! A disk that something other than the helper uses is refused.

use ebs_csi_policy::judge::disk_holders::{Holder, PartFacts, judge};
use proptest::prelude::*;

const FREE: PartFacts = PartFacts {
    mounted: false,
    mounted_elsewhere: false,
    shown: false,
    was_mounted: false,
    layered: false,
    claimed: false,
    claimed_next: false,
};
const CLAIMED: PartFacts = PartFacts { claimed: true, ..FREE };

/// The check covers the whole disk, its partitions and loop devices on it. A pod may use a disk
/// that is published to it.
#[test]
fn disk_held_outside_driver_is_refused() {
    let mounted = PartFacts { mounted: true, ..CLAIMED };
    let was_mounted = PartFacts { was_mounted: true, ..CLAIMED };
    let shown = PartFacts { shown: true, ..CLAIMED };
    let next = PartFacts { claimed_next: true, ..CLAIMED };
    let elsewhere = PartFacts { mounted_elsewhere: true, ..CLAIMED };
    let layered = PartFacts { layered: true, ..CLAIMED };
    let layered_and_shown = PartFacts { layered: true, ..shown };
    for (parts, expected) in [
        (&[FREE][..], Ok(())),
        (&[FREE, FREE, FREE], Ok(())),
        (&[CLAIMED], Err(Holder::Claimed(0))),
        (&[mounted], Ok(())),
        (&[was_mounted], Ok(())),
        (&[shown], Ok(())),
        (&[next], Ok(())),
        (&[elsewhere], Err(Holder::Mounted(0))),
        (&[CLAIMED, FREE, elsewhere], Err(Holder::Mounted(2))),
        (&[CLAIMED, CLAIMED, FREE], Err(Holder::Claimed(1))),
        // A partition that a pod uses does not explain the claim of another partition.
        (&[CLAIMED, mounted, CLAIMED], Err(Holder::Claimed(2))),
        (&[CLAIMED, shown, CLAIMED], Err(Holder::Claimed(2))),
        (&[CLAIMED, mounted, FREE], Ok(())),
        (&[CLAIMED, next, was_mounted], Ok(())),
        // A user of the whole disk may hold the claim on each of its partitions.
        (&[shown, CLAIMED, CLAIMED], Ok(())),
        (&[layered], Err(Holder::Layered(0))),
        (&[CLAIMED, FREE, layered], Err(Holder::Layered(2))),
        (&[layered_and_shown], Ok(())),
        (&[CLAIMED, layered_and_shown], Ok(())),
        (&[shown, layered], Ok(())),
    ] {
        assert_eq!(judge(parts, false), expected, "{parts:?}");
    }
    assert_eq!(judge(&[FREE], true), Err(Holder::BeneathLoop));
    assert_eq!(judge(&[mounted], true), Err(Holder::BeneathLoop));
    assert_eq!(judge(&[shown], true), Ok(()));
}

fn part() -> impl Strategy<Value = PartFacts> {
    any::<[bool; 7]>().prop_map(|bits| PartFacts {
        mounted: bits[0],
        mounted_elsewhere: bits[1],
        shown: bits[2],
        was_mounted: bits[3],
        layered: bits[4],
        claimed: bits[5],
        claimed_next: bits[6],
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn added_use_never_makes_disk_free(
        parts in prop::collection::vec(part(), 1..5),
        beneath_loop: bool,
        at in 0..5_usize,
    ) {
        let before = judge(&parts, beneath_loop);
        let mut worse = parts.clone();
        let at = at % parts.len();
        worse[at].mounted_elsewhere = true;
        prop_assert!(judge(&worse, beneath_loop).is_err());
        worse[at] = parts[at];
        worse[at].layered = true;
        prop_assert!(before.is_ok() || judge(&worse, beneath_loop).is_err());
        prop_assert!(before.is_ok() || judge(&parts, true).is_err());
    }
}
