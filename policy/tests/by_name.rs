//! Disks without a serial: each fact that contradicts a device name is a refusal of its own.

use ebs_csi_policy::by_name::{Before, DisksWithoutSerial, Mark, NameFacts, Use, judge};
use ebs_csi_wire::{Disk, Origin, Refusal, Source, VolumeId};

/// Nothing is known about the disk, and nobody uses it.
const FRESH: NameFacts = NameFacts {
    before: Before::Nothing,
    other_disk: false,
    mark: Mark::None,
    used: Use::Nobody,
};

fn asked(origin: Origin) -> Disk {
    Disk {
        volume: VolumeId::parse("vol-0123456789abcdef0").unwrap(),
        device_hint: None,
        partition: None,
        size_at_attach: None,
        origin,
        source: Source::Elsewhere,
    }
}

#[test]
fn a_name_is_taken_where_nothing_speaks_against_it() {
    use Origin::{Blank, Copy, Unknown};
    let mismatch = Err(Refusal::DeviceMismatch);
    for (facts, origins, expected) in [
        (FRESH, &[Unknown, Blank, Copy][..], Ok(())),
        (
            NameFacts {
                mark: Mark::ThisVolume,
                ..FRESH
            },
            &[Unknown, Blank, Copy][..],
            Ok(()),
        ),
        (
            NameFacts {
                mark: Mark::Another,
                ..FRESH
            },
            &[Unknown, Blank][..],
            mismatch,
        ),
        // The snapshot was taken from that other volume.
        (
            NameFacts {
                mark: Mark::Another,
                ..FRESH
            },
            &[Copy][..],
            Ok(()),
        ),
        (
            NameFacts {
                used: Use::Kubelet,
                ..FRESH
            },
            &[Unknown][..],
            Ok(()),
        ),
        (
            NameFacts {
                used: Use::Elsewhere,
                ..FRESH
            },
            &[Unknown][..],
            Err(Refusal::StillHeld),
        ),
        (
            NameFacts {
                used: Use::Former,
                ..FRESH
            },
            &[Unknown][..],
            mismatch,
        ),
        (
            NameFacts {
                other_disk: true,
                ..FRESH
            },
            &[Unknown][..],
            Err(Refusal::DeviceAmbiguous),
        ),
    ] {
        for origin in origins {
            assert_eq!(judge(&asked(*origin), &facts), expected, "{facts:?}");
        }
    }
}

#[test]
fn what_a_disk_was_taken_for_counts_more_than_all_that_is_seen_of_it() {
    for mark in [Mark::None, Mark::ThisVolume, Mark::Another] {
        for used in [Use::Nobody, Use::Kubelet, Use::Elsewhere, Use::Former] {
            for other_disk in [false, true] {
                for (before, expected) in [
                    (Before::ThisVolume, Ok(())),
                    (Before::Another, Err(Refusal::DeviceMismatch)),
                ] {
                    let facts = NameFacts {
                        before,
                        other_disk,
                        mark,
                        used,
                    };
                    assert_eq!(judge(&asked(Origin::Copy), &facts), expected, "{facts:?}");
                }
            }
        }
    }
}

#[test]
fn the_switch_has_two_words_and_by_name_is_the_default() {
    assert_eq!(DisksWithoutSerial::default(), DisksWithoutSerial::ByName);
    for one in DisksWithoutSerial::ALL {
        assert_eq!(DisksWithoutSerial::parse(one.as_str()), Some(one));
    }
    assert_eq!(DisksWithoutSerial::parse("name"), None);
}
