//! EC2's resources, in the driver's own types.

pub(super) mod caller_identity;
pub(super) mod instance;
pub(super) mod instance_status;
pub(super) mod list_page;
pub(super) mod look_result;
pub(super) mod modification;
pub(super) mod sdk_field;
pub(super) mod snapshot;
pub(super) mod tags;
pub(super) mod timestamp;
pub(super) mod volume;
pub(super) mod volume_status;
pub(super) mod zone;
