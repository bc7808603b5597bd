//! The areas that must be zero: each row is read, and no area is read twice.

use ebs_csi_policy::blank::{AREAS, AreaStart, ranges};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn covers(size: u64, at: u64) -> bool {
    ranges(size).iter().any(|(start, length)| (*start..start + length).contains(&at))
}

#[test]
fn every_area_is_read_on_512_gib_disk() {
    let size = 512 * GIB;
    for area in AREAS {
        let starts = match area.from {
            AreaStart::Start => vec![area.offset],
            AreaStart::End => vec![size - area.offset],
            AreaStart::Quarter => (1..4).map(|n| size / 4 * n - area.offset).collect(),
            AreaStart::Part(parts) => {
                let part = size / u64::from(parts);
                (0..u64::from(parts)).map(|n| part * n + part / 2 - area.offset).collect()
            }
        };
        for start in starts {
            assert!(covers(size, start), "{}", area.why);
            assert!(covers(size, start + area.length - 1), "{}", area.why);
        }
    }
}

#[test]
fn unread_gap_never_exceeds_1_64th_of_disk() {
    for size in [512 * MIB, 4 * GIB, 100 * GIB, 16 << 40, 64 << 40] {
        let mut end = 0;
        for (start, length) in ranges(size) {
            assert!(start - end <= size / 64, "{size}: {end} to {start}");
            end = start + length;
        }
    }
}

#[test]
fn offsets_outside_areas_are_not_read() {
    let size = 512 * GIB;
    for at in [3 * MIB, 100 * MIB, 200 * GIB, size - 4 * MIB] {
        assert!(!covers(size, at), "{at}");
    }
}

#[test]
fn ranges_cover_known_format_signatures() {
    let size = 100 * GIB;
    for (at, what) in [
        (0, "XFS, LUKS, boot sectors"),
        (510, "MBR"),
        (512, "GPT of 512-byte sectors"),
        (1024 + 56, "ext"),
        (4096, "GPT of 4096-byte sectors, md 1.2, bcache"),
        (4086, "swap"),
        (32 * 1024, "JFS"),
        (32 * 1024 + 1, "ISO 9660"),
        (64 * 1024 + 64, "btrfs"),
        (128 * 1024, "ZFS"),
        (8 * MIB + 1024, "ext backup, 1 KiB blocks"),
        (128 * MIB, "ext backup, 4 KiB blocks"),
        (size - 512, "backup GPT"),
        (size - 64 * 1024, "md 0.9"),
        (size - 512 * 1024, "ZFS labels"),
        (size / 4, "an XFS group"),
    ] {
        assert!(covers(size, at), "{what} at {at}");
    }
}

#[test]
fn disk_smaller_than_areas_is_read_whole() {
    for size in [1, 4096, 65_536, MIB, 2 * MIB] {
        assert_eq!(ranges(size), [(0, size)], "{size}");
    }
    assert!(ranges(0).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_are_ascending_aligned_and_within_the_disk(size in 1..(64_u64 << 40)) {
        let mut end = 0;
        let mut total = 0;
        for (at, (start, length)) in ranges(size).into_iter().enumerate() {
            prop_assert!(at == 0 || start > end);
            prop_assert_eq!(start % 4096, 0);
            prop_assert!(length % 4096 == 0 || start + length == size);
            prop_assert!(length > 0);
            end = start + length;
            total += length;
            prop_assert!(end <= size);
        }
        prop_assert_eq!(end, size);
        // The cost of the check that a disk is blank does not grow with the disk's size.
        prop_assert!(total <= 8 << 20);
    }
}
