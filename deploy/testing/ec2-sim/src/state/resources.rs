//! The resources and their state machines. Each transition is computed from the time that was
//! stored in the resource when the transition began, so no task has to run in between: `due`
//! returns when the next transition is due, and `advance` performs it.

mod attachment;
mod checks;
mod instance;
mod modification;
mod snapshot;
pub(crate) mod tags;
mod volume;
pub(crate) mod volume_type;
mod zone;

pub(crate) use attachment::{Attachment, AttachmentEvent, Phase, device_suffix, is_device_name};
pub(crate) use checks::{CheckResult, ChecksChange, InstanceChecks, Performance, VolumeChecks};
pub(crate) use instance::{
    Instance, InstanceEvent, InstanceState, InstanceType, ROOT_DEVICE, TYPES, attachment_limit,
    find_type, mac,
};
pub use modification::ModificationState;
pub(crate) use modification::{Modification, Shape};
pub(crate) use snapshot::Snapshot;
#[cfg(test)]
pub(crate) use snapshot::tests::fresh as fresh_snapshot;
pub(crate) use snapshot::{Archival, Lock, LockEnd, SnapshotState};
pub(crate) use tags::{NO_TAGS, Tags};
pub(crate) use volume::{
    CreateOutcome, Initialization, MAX_MULTI_ATTACH, MAX_TOKEN_LENGTH, TokenUse, VolumeEvent,
    VolumeState, find_replayed,
};
pub use volume::{Origin, Volume};
pub(crate) use volume_type::{VolumeType, Wanted};
pub(crate) use zone::Zone;
pub(crate) use zone::ZoneKind;
pub use zone::ZoneState;

/// Returns EC2's name of a variant without data, which serde writes, too.
pub(crate) fn name_of(variant: impl serde::Serialize) -> String {
    let name = serde_json::to_value(variant).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}
