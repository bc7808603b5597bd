//! Which disk a request names: the volume by the request's volume id, the partition by the volume
//! context, and the rest by the publish context.

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroU64};

use ebs_csi_proto::publish_context::{
    ATTACHED_AT, BLANK, DEVICE_PATH, ORIGIN, OWN_SNAPSHOT, OWN_VOLUME, SIZE_BYTES, UNSEEN_SNAPSHOT,
    UNSEEN_VOLUME, VOLUME_ID,
};
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{AttachedAt, DeviceName, Disk, Origin, Source, VolumeId};

/// In the volume context: the number of a partition.
const PARTITION: &str = "partition";
/// The kernel's minor numbers limit the partitions to this number.
const LAST_PARTITION: u32 = 255;

/// Prefix of a static volume that stands for a device name on every node that uses it.
const NODE_LOCAL: &str = "local-ebs://";

/// A volume context or a publish context.
pub(super) type Context = HashMap<String, String>;

/// The object that a volume id names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    Volume(VolumeId),
    /// A node-local volume: the publish context, or the helper's inventory, tells which EBS volume
    /// it is on this node.
    NodeLocal,
    /// An id that EC2 cannot have issued.
    Unknown,
}

impl Handle {
    /// Classifies an id by its form.
    pub(crate) fn read(id: &str) -> Self {
        match VolumeId::parse(id) {
            Ok(volume) => Self::Volume(volume),
            Err(_) if id.starts_with(NODE_LOCAL) => Self::NodeLocal,
            Err(_) => Self::Unknown,
        }
    }

    /// Returns the EBS volume.
    ///
    /// # Errors
    /// NOT_FOUND for an unknown id; INVALID_ARGUMENT when the publish context of a node-local
    /// volume does not name the volume.
    pub(super) fn volume(self, id: &str, publish_context: &Context) -> Result<VolumeId, Failure> {
        match self {
            Self::Volume(volume) => Ok(volume),
            Self::NodeLocal => {
                let named = publish_context.get(VOLUME_ID).map_or("", String::as_str);
                VolumeId::parse(named).map_err(|error| {
                    Failure::invalid(
                        "publish_context.volumeID",
                        format!("{error}; the controller gives it for node-local volumes when it runs with --enable-node-local-volumes"),
                    )
                })
            }
            Self::Unknown => Err(unknown(id)),
        }
    }
}

/// Creates the failure for a volume id that EC2 cannot have issued.
pub(super) fn unknown(id: &str) -> Failure {
    let why = VolumeId::parse(id).err().map_or_else(String::new, |e| e.to_string());
    Failure::new(Condition::NotFound, format!("volume_id: no such volume: {why}"))
}

/// Returns the partition; none or 0 means the whole disk (volumes that were migrated from the
/// in-tree driver have "0").
pub(super) fn partition(volume_context: &Context) -> Result<Option<NonZeroU32>, Failure> {
    let Some(text) = volume_context.get(PARTITION) else {
        return Ok(None);
    };
    text.parse::<u32>()
        .ok()
        .filter(|number| *number <= LAST_PARTITION)
        .map(NonZeroU32::new)
        .ok_or_else(|| {
            Failure::invalid(
                "volume_context.partition",
                format!(
                    "{:?} is not a number from 0 to {LAST_PARTITION}; leave it out for the whole disk",
                    super::shortened(text)
                ),
            )
        })
}

/// Checks that the device path is present, in calls that need an attached device, as the Go driver
/// does.
pub(super) fn require_device_path(publish_context: &Context) -> Result<(), Failure> {
    match publish_context.get(DEVICE_PATH) {
        Some(path) if !path.is_empty() => Ok(()),
        _ => Err(Failure::missing("publish_context.devicePath")),
    }
}

pub(super) fn read(
    volume: VolumeId,
    partition: Option<NonZeroU32>,
    publish_context: &Context,
) -> Result<Disk, Failure> {
    let (origin, source) = origin(publish_context);
    Ok(Disk {
        volume,
        device_hint: device_hint(publish_context)?,
        partition,
        size_at_attach: size_at_attach(publish_context)?,
        origin,
        source,
        // A time that cannot be read counts as none: then the disk's own number is compared.
        attached_at: publish_context.get(ATTACHED_AT).and_then(|at| AttachedAt::parse(at).ok()),
    })
}

/// Returns a name of EC2's form as a hint and ignores another node beneath /dev; any other text is
/// an error.
fn device_hint(publish_context: &Context) -> Result<Option<DeviceName>, Failure> {
    let Some(text) = publish_context.get(DEVICE_PATH).filter(|t| !t.is_empty()) else {
        return Ok(None);
    };
    if let Ok(name) = DeviceName::parse(text) {
        return Ok(Some(name));
    }
    let plain = text
        .strip_prefix("/dev/")
        .is_some_and(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric()));
    if plain {
        return Ok(None);
    }
    Err(Failure::invalid(
        "publish_context.devicePath",
        format!(
            "{:?} is not a device; expected /dev/ and one name, as ControllerPublishVolume returned it",
            super::shortened(text)
        ),
    ))
}

fn size_at_attach(publish_context: &Context) -> Result<Option<NonZeroU64>, Failure> {
    let Some(text) = publish_context.get(SIZE_BYTES) else {
        return Ok(None);
    };
    text.parse::<u64>().map(NonZeroU64::new).map_err(|_| {
        Failure::invalid(
            "publish_context.ebs.csi.aws.com/size-bytes",
            format!(
                "{:?} is not a number of bytes; pass on what ControllerPublishVolume returned",
                super::shortened(text)
            ),
        )
    })
}

/// A value that this release does not know counts as a copy of something made elsewhere: such a
/// volume is never formatted, and is checked in full.
fn origin(publish_context: &Context) -> (Origin, Source) {
    match publish_context.get(ORIGIN).map(String::as_str) {
        None | Some("") => (Origin::Unknown, Source::Elsewhere),
        Some(BLANK) => (Origin::Blank, Source::Elsewhere),
        Some(OWN_SNAPSHOT | OWN_VOLUME) => (Origin::Copy, Source::Own),
        Some(UNSEEN_SNAPSHOT | UNSEEN_VOLUME) => (Origin::Copy, Source::Untold),
        Some(_) => (Origin::Copy, Source::Elsewhere),
    }
}
