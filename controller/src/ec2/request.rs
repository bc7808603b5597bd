//! What the controller asks EC2 to do, in our words.

use std::collections::BTreeMap;

use ebs_csi_proto::GiB;
use ebs_csi_wire::{SnapshotId, VolumeId};

use super::timestamp::Timestamp;

/// How an instance is taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// Stopped; its volumes stay.
    Stop,
    /// Ended for good.
    Terminate,
}

impl PowerOff {
    /// The word of metrics and log lines.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Terminate => "terminate",
        }
    }
}

/// Tags to put on a resource, sorted, so that the same request is the same bytes.
pub type Tags = BTreeMap<String, String>;

/// A volume to make. Idempotent by its token: the same token and parameters return the volume that the first call made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateVolume {
    /// At most 64 ASCII characters.
    pub client_token: String,
    /// Its size; EC2 raises it to the snapshot's.
    pub size: GiB,
    /// Its type (`gp3`).
    pub kind: String,
    /// The zone by name. EC2 refuses a name and an id together.
    pub zone: Option<String>,
    /// The zone by id.
    pub zone_id: Option<String>,
    /// The Outpost to make it on.
    pub outpost_arn: Option<String>,
    /// Whether to encrypt it; `None` leaves it to the snapshot and to the account's default.
    pub encrypted: Option<bool>,
    /// The key to encrypt it with.
    pub kms_key_id: Option<String>,
    /// Provisioned IOPS.
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB/s.
    pub throughput: Option<u32>,
    /// The snapshot to fill it from.
    pub snapshot: Option<SnapshotId>,
    /// MiB/s at which it is filled from the snapshot.
    pub initialization_rate: Option<u32>,
    /// Whether several instances may attach it.
    pub multi_attach: bool,
    /// Its tags.
    pub tags: Tags,
}

/// A copy of a volume, in the zone of its source. Idempotent by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyVolume {
    /// At most 64 ASCII characters.
    pub client_token: String,
    /// What to copy.
    pub source: VolumeId,
    /// Its size, at least the source's.
    pub size: GiB,
    /// Its type.
    pub kind: String,
    /// Provisioned IOPS.
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB/s.
    pub throughput: Option<u32>,
    /// Whether several instances may attach it.
    pub multi_attach: bool,
    /// Its tags.
    pub tags: Tags,
}

/// A change of a volume; `None` leaves as it is.
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

/// A snapshot to take. EC2 has no token for it: sent twice, it makes two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateSnapshot {
    /// What to take it of.
    pub volume: VolumeId,
    /// ASCII text.
    pub description: String,
    /// The Outpost to keep it on.
    pub outpost_arn: Option<String>,
    /// Its tags.
    pub tags: Tags,
}

/// A lock on a snapshot (EC2 API reference, LockSnapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSnapshot {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// `governance` or `compliance`.
    pub mode: String,
    /// Days; excludes `expires`.
    pub duration_days: Option<u32>,
    /// When it ends; excludes `duration_days`.
    pub expires: Option<Timestamp>,
    /// Hours during which a compliance lock can still be taken back.
    pub cool_off_hours: Option<u32>,
}

/// Where and of what type a volume would be, to learn the most IOPS that EC2 grants there.
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
    /// Tags as a real volume would have them: IAM policies may require some.
    pub tags: Tags,
}

/// The answer to an [`IopsQuestion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxIops {
    /// At most so many.
    AtMost(u32),
    /// The type has no IOPS parameter.
    NotSettable,
    /// EC2's answer did not say.
    NotSaid,
}

/// Whether a detach is forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// The guest must have released the device.
    No,
    /// Even if the guest still writes: data may be lost.
    Yes,
}

/// The tags by which volumes are known as a cluster's own: one that must be there, and one with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTags {
    /// The key that every volume of this driver bears.
    pub key: &'static str,
    /// The tag that tells whose it is.
    pub owner: (String, String),
}

impl OwnTags {
    /// Whether something bears them.
    pub fn are_on(&self, tags: &Tags) -> bool {
        tags.contains_key(self.key) && tags.get(&self.owner.0) == Some(&self.owner.1)
    }
}

/// Which page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// At most so many entries; EC2 takes 5 or more.
    pub max: Option<u32>,
    /// Where the page before ended.
    pub token: Option<String>,
    /// Snapshots of this volume only.
    pub volume: Option<VolumeId>,
}

/// A page of a listing.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The entries; may be empty though a next page exists.
    pub entries: Vec<T>,
    /// Where the next page begins.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// EC2 says that there is no next page by no token, or by an empty one.
    pub(super) fn new(entries: Vec<T>, next: Option<&str>) -> Self {
        Self {
            entries,
            next: next.filter(|token| !token.is_empty()).map(str::to_owned),
        }
    }
}
