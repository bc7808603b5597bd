//! The changes that the controller asks of EC2, in the driver's terms.

use std::collections::BTreeMap;

use ebs_csi_proto::GiB;
use ebs_csi_wire::{SnapshotId, VolumeId};

use super::timestamp::Timestamp;

/// How an instance is turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// Stop the instance; its volumes stay.
    Stop,
    /// Terminate the instance for good.
    Terminate,
}

impl PowerOff {
    /// Returns the word in metrics and log lines.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Terminate => "terminate",
        }
    }
}

/// Tags to put on a resource, sorted, so that equal requests have equal bytes.
pub type Tags = BTreeMap<String, String>;

/// A volume to create. Idempotent by its token: the same token and parameters return the volume
/// that the first call created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateVolume {
    /// The client token: at most 64 ASCII characters.
    pub client_token: String,
    /// The size; EC2 raises it to the snapshot's.
    pub size: GiB,
    /// The volume type (`gp3`).
    pub kind: String,
    /// The zone by name. EC2 refuses a name and an id together.
    pub zone: Option<String>,
    /// The zone by id.
    pub zone_id: Option<String>,
    /// The Outpost to create the volume on.
    pub outpost_arn: Option<String>,
    /// Whether to encrypt the volume; `None` leaves that to the snapshot and to the account's
    /// default.
    pub encrypted: Option<bool>,
    /// The key to encrypt the volume with.
    pub kms_key_id: Option<String>,
    /// Provisioned IOPS.
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB/s.
    pub throughput: Option<u32>,
    /// The snapshot whose data the volume gets.
    pub snapshot: Option<SnapshotId>,
    /// The rate in MiB/s at which the volume is filled from the snapshot.
    pub initialization_rate: Option<u32>,
    /// Whether several instances may attach the volume.
    pub multi_attach: bool,
    /// The volume's tags.
    pub tags: Tags,
}

/// A copy of a volume, in the zone of its source. Idempotent by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyVolume {
    /// The client token: at most 64 ASCII characters.
    pub client_token: String,
    /// The volume to copy.
    pub source: VolumeId,
    /// The size, at least the source's.
    pub size: GiB,
    /// The volume type.
    pub kind: String,
    /// Whether to encrypt the copy; `None` leaves it as its source is.
    pub encrypted: Option<bool>,
    /// The key to encrypt the copy with.
    pub kms_key_id: Option<String>,
    /// Provisioned IOPS.
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB/s.
    pub throughput: Option<u32>,
    /// Whether several instances may attach the copy.
    pub multi_attach: bool,
    /// The copy's tags.
    pub tags: Tags,
}

/// A change of a volume; a field that is `None` stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModifyVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The new size, not below the present one.
    pub size: Option<GiB>,
    /// The new type.
    pub kind: Option<String>,
    /// The new IOPS.
    pub iops: Option<u32>,
    /// The new throughput in MiB/s.
    pub throughput: Option<u32>,
}

impl ModifyVolume {
    /// Returns a change that leaves everything as it is.
    pub fn nothing(volume: VolumeId) -> Self {
        Self { volume, size: None, kind: None, iops: None, throughput: None }
    }
}

/// A snapshot to take. EC2 has no client token for it: a request that is sent twice makes two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateSnapshot {
    /// The volume to take the snapshot of.
    pub volume: VolumeId,
    /// A description in ASCII.
    pub description: String,
    /// The Outpost to keep the snapshot on.
    pub outpost_arn: Option<String>,
    /// The snapshot's tags.
    pub tags: Tags,
}

/// A lock on a snapshot (EC2 API reference, LockSnapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSnapshot {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// `governance` or `compliance`.
    pub mode: String,
    /// The duration in days; excludes `expires`.
    pub duration_days: Option<u32>,
    /// When the lock ends; excludes `duration_days`.
    pub expires: Option<Timestamp>,
    /// Hours during which a compliance lock can still be lifted.
    pub cool_off_hours: Option<u32>,
}

/// The place and type of a possible volume, to find the most IOPS that EC2 grants there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IopsQuestion {
    /// The type.
    pub kind: String,
    /// The zone by name; preferred over the id.
    pub zone: Option<String>,
    /// The zone by id.
    pub zone_id: Option<String>,
    /// The Outpost.
    pub outpost_arn: Option<String>,
    /// Tags as a real volume would have them, because IAM policies may require some.
    pub tags: Tags,
}

/// The answer to an [`IopsQuestion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxIops {
    /// At most this many.
    AtMost(u32),
    /// The type has no IOPS parameter.
    NotSettable,
    /// EC2's answer did not say.
    NotSaid,
}

/// Whether a detach is forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// The detach waits until the guest has released the device.
    No,
    /// The detach does not wait, even if the guest still writes: data may be lost.
    Yes,
}

/// The tags that mark volumes as a cluster's own: one key that must be present, and one tag with
/// its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTags {
    /// The key that every volume of this driver has.
    pub key: &'static str,
    /// The tag that names the owner.
    pub owner: (String, String),
}

impl OwnTags {
    /// Returns whether these tags hold both.
    pub fn are_on(&self, tags: &Tags) -> bool {
        tags.contains_key(self.key) && tags.get(&self.owner.0) == Some(&self.owner.1)
    }
}

/// Selects one page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The most entries; EC2 takes 5 or more.
    pub max: Option<u32>,
    /// The token of this page, from the page before it; `None` for the first page.
    pub token: Option<String>,
    /// The volume whose snapshots are listed; `None` for all.
    pub volume: Option<VolumeId>,
}

/// A page of a listing.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The entries; may be empty although a next page exists.
    pub entries: Vec<T>,
    /// The token of the next page.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Creates a page. EC2 marks the last page by a missing or an empty token.
    pub(crate) fn new(entries: Vec<T>, next: Option<&str>) -> Self {
        Self { entries, next: next.filter(|token| !token.is_empty()).map(str::to_owned) }
    }
}
