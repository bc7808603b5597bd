//! The resources and their state machines. Each transition is computed from the time that was
//! stored in the resource when the transition began, so no task has to run in between: `due`
//! returns when the next transition is due, and `advance` performs it.

mod attachment;
mod instance;
mod modification;
mod snapshot;
pub(crate) mod tags;
mod volume;
pub(crate) mod volume_type;

pub(crate) use attachment::{Attachment, AttachmentEvent, Phase, device_suffix, is_device_name};
pub(crate) use instance::{
    ChecksChange, Instance, InstanceChecks, InstanceEvent, InstanceState, ROOT_DEVICE, TYPES,
    attachment_limit, find_type, mac,
};
pub use modification::ModificationState;
pub(crate) use modification::{Modification, Shape};
#[cfg(test)]
pub(crate) use snapshot::tests::fresh as fresh_snapshot;
pub(crate) use snapshot::{Archival, Lock, LockEnd, Snapshot, SnapshotState};
pub(crate) use tags::{NO_TAGS, Tags};
pub(crate) use volume::{
    CreateOutcome, Initialization, MAX_MULTI_ATTACH, Performance, TokenUse, VolumeEvent,
    VolumeState,
};
pub use volume::{Origin, Volume};
pub(crate) use volume_type::{VolumeType, Wanted};

use serde::{Deserialize, Serialize};

/// Returns EC2's name of a variant without data, which serde writes, too.
pub(crate) fn name_of(variant: impl Serialize) -> String {
    let name = serde_json::to_value(variant).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

/// A zone as one account sees it. Names differ between accounts; ids do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// The name, such as `us-east-1a`.
    pub name: String,
    /// The id, such as `use1-az6`.
    pub id: String,
    #[serde(default)]
    pub state: ZoneState,
    /// The kind of the zone: EC2's `zoneType`.
    #[serde(default, rename = "type")]
    pub kind: ZoneKind,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZoneKind {
    #[default]
    #[serde(rename = "availability-zone")]
    Availability,
    #[serde(rename = "local-zone")]
    Local,
    #[serde(rename = "wavelength-zone")]
    Wavelength,
}

/// The state of a zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZoneState {
    /// The zone works.
    #[default]
    Available,
    /// Calls that concern the zone are refused.
    Unavailable,
}
