//! The disk of a request.

use std::num::{NonZeroU32, NonZeroU64};

use crate::closed::closed_enum;
use crate::codec::{Field, Message, closed_fields, message};
use crate::{DeviceName, FormatOptions, FsType, Malformed, MountFlag, VolumeId, pb};

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

closed_fields!(FsType, Origin, Source);

message! {
    /// How to find and identify the volume's disk.
    Disk, checked by Disk::check_partition {
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

impl Disk {
    fn check_partition(&self) -> Result<(), Malformed> {
        match self.partition {
            Some(number) if number.get() > PARTITION_LIMIT => {
                Err(Malformed::Invalid { field: "partition" })
            }
            _ => Ok(()),
        }
    }
}

impl Field for FormatOptions {
    type Pb = Option<pb::FormatOptions>;

    fn read(wire: Self::Pb, _: &'static str) -> Result<Self, Malformed> {
        Ok(Self::check(wire.unwrap_or_default())?)
    }

    fn write(&self) -> Self::Pb {
        Some(self.unchecked())
    }
}

impl Message for MountFlag {
    type Pb = pb::MountFlag;

    fn read(wire: pb::MountFlag) -> Result<Self, Malformed> {
        let value = (!wire.value.is_empty()).then_some(wire.value.as_str());
        Ok(Self::new(&wire.name, value)?)
    }

    fn write(&self) -> pb::MountFlag {
        let (name, value) = (self.name().to_owned(), self.value().unwrap_or_default().to_owned());
        pb::MountFlag { name, value }
    }

    fn check_list(flags: &[Self], _: &'static str) -> Result<(), Malformed> {
        Ok(Self::check_list(flags)?)
    }
}
