//! Disks without a serial: each fact that contradicts a device name causes a refusal.

mod fixtures;

use ebs_csi_policy::judge::disk_by_name::{DisksWithoutSerial, NameFacts, Use, Whose, judge};
use ebs_csi_wire::{Origin, Refusal};

/// Facts of a disk about which nothing is known and which nobody uses.
const FRESH: NameFacts = NameFacts {
    before: Whose::Unknown,
    other_disk: false,
    mark: Whose::Unknown,
    used: Use::Nobody,
};

#[test]
fn device_name_is_accepted_unless_facts_contradict() {
    use Origin::{Blank, Copy, Unknown};
    let mismatch = Err(Refusal::DeviceMismatch);
    for (facts, origins, expected) in [
        (FRESH, &[Unknown, Blank, Copy][..], Ok(())),
        (NameFacts { mark: Whose::ThisVolume, ..FRESH }, &[Unknown, Blank, Copy][..], Ok(())),
        (NameFacts { mark: Whose::Another, ..FRESH }, &[Unknown, Blank][..], mismatch),
        // The snapshot was taken from that other volume.
        (NameFacts { mark: Whose::Another, ..FRESH }, &[Copy][..], Ok(())),
        (NameFacts { used: Use::Kubelet, ..FRESH }, &[Unknown][..], Ok(())),
        (NameFacts { used: Use::Elsewhere, ..FRESH }, &[Unknown][..], Err(Refusal::StillHeld)),
        (NameFacts { used: Use::Former, ..FRESH }, &[Unknown][..], mismatch),
        (NameFacts { other_disk: true, ..FRESH }, &[Unknown][..], Err(Refusal::DeviceAmbiguous)),
    ] {
        for origin in origins {
            assert_eq!(judge(&fixtures::disk(*origin), &facts), expected, "{facts:?}");
        }
    }
}

#[test]
fn earlier_identification_outweighs_all_other_facts() {
    for mark in [Whose::Unknown, Whose::ThisVolume, Whose::Another] {
        for used in [Use::Nobody, Use::Kubelet, Use::Elsewhere, Use::Former] {
            for other_disk in [false, true] {
                for (before, expected) in
                    [(Whose::ThisVolume, Ok(())), (Whose::Another, Err(Refusal::DeviceMismatch))]
                {
                    let facts = NameFacts { before, other_disk, mark, used };
                    assert_eq!(judge(&fixtures::disk(Origin::Copy), &facts), expected, "{facts:?}");
                }
            }
        }
    }
}

#[test]
fn disks_without_serial_setting_defaults_to_by_name() {
    assert_eq!(DisksWithoutSerial::default(), DisksWithoutSerial::ByName);
    for one in DisksWithoutSerial::ALL {
        assert_eq!(DisksWithoutSerial::parse(one.as_str()), Some(*one));
    }
    assert_eq!(DisksWithoutSerial::parse("name"), None);
}
