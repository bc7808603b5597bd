//! The resources and their state machines. Each transition is computed from the time that was
//! stored in the resource when the transition began, so no task has to run in between: `due`
//! returns when the next transition is due, and `advance` performs it.

pub(crate) mod attachment;
pub(crate) mod client_token;
pub(crate) mod device_name;
pub(crate) mod instance;
pub(crate) mod instance_checks;
pub(crate) mod instance_type;
pub(crate) mod modification;
pub(crate) mod snapshot;
pub(crate) mod tags;
pub(crate) mod volume;
pub(crate) mod volume_checks;
pub(crate) mod volume_type;
pub(crate) mod zone;
