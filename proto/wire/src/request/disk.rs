//! The disk of a request.

use std::num::{NonZeroU32, NonZeroU64};

use crate::closed::closed_enum;
use crate::codec::{message, values};
use crate::{DeviceName, FsType, Malformed, MountFlag, VolumeId, pb};

/// Partition numbers are limited by the kernel's minor numbers.
const PARTITION_LIMIT: u32 = 255;

closed_enum! {
    /// The controller's report about the volume's first content.
    Origin mirrors Origin, "origin" {
        /// The controller did not report it.
        Unknown => "unknown",
        /// Made empty.
        Blank => "blank",
        /// Restored from a snapshot or cloned: never formatted.
        Copy => "copy",
    }
}

closed_enum! {
    /// Who wrote the source of a copy. Meaningful only with [`Origin::Copy`].
    Source mirrors Source, "source" {
        /// Somebody else wrote it, or the controller is of the previous release.
        Elsewhere => "elsewhere",
        /// This driver wrote it, for this cluster.
        Own => "own",
        /// The controller could no longer see the source.
        Untold => "untold",
    }
}

values! {
    FsType, i32: |wire| Self::from_wire(wire)?, |value| value.to_wire();
    Origin, i32: |wire| Self::from_wire(wire)?, |value| value.to_wire();
    Source, i32: |wire| Self::from_wire(wire)?, |value| value.to_wire();
    MountFlag, pb::MountFlag:
        |wire| Self::new(&wire.name, Some(wire.value.as_str()).filter(|value| !value.is_empty()))?,
        |flag| pb::MountFlag {
            name: flag.name().to_owned(),
            value: flag.value().unwrap_or_default().to_owned(),
        };
}

message! {
    /// How to find and identify the volume's disk.
    Disk, checked by (check_partition) {
        /// The volume; its serial identifies the disk.
        volume: VolumeId = volume_id,
        /// The device name that EC2 was given: a hint for a disk with a serial. It identifies only
        /// a disk without one.
        device_hint: Option<DeviceName> = device_hint,
        /// The partition; `None`: the whole disk.
        partition: Option<NonZeroU32> = partition,
        /// The volume's size when it was attached, in bytes; `None` when the controller did not
        /// report it.
        size_at_attach: Option<NonZeroU64> = size_at_attach,
        /// The controller's report about the first content.
        origin: Origin = origin,
        /// The controller's report about the source of a copy.
        source: Source = source,
    }
}

fn check_partition(disk: &Disk) -> Result<(), Malformed> {
    let in_range = disk.partition.is_none_or(|number| number.get() <= PARTITION_LIMIT);
    if in_range { Ok(()) } else { Err(Malformed::Invalid { field: "partition" }) }
}
