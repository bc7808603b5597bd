//! The resources and their state machines. Each move is computed from the time that was written into the resource when the move began:
//! no task has to run in between, and a restarted simulator carries on where time has got to.

pub mod attachment;
pub mod client_token;
pub mod device_name;
pub mod fast_restore;
pub mod instance;
pub mod instance_checks;
pub mod instance_type;
pub mod modification;
pub mod snapshot;
pub mod tags;
pub mod volume;
pub mod volume_checks;
pub mod volume_type;
