//! Access to EC2: few and shared reads, answers that are present, absent or unknown, and changes
//! that are sent once.
//!
//! No type of the AWS SDK leaves this module. Reads go through shared pollers, one per Describe API
//! (`poller.rs`). Every call goes through its action's lane (`lane.rs`), whose bucket keeps EC2's
//! own limits. The SDK sends each request once, and `retry.rs` decides whether it is sent again.

mod action;
mod agent;
mod bucket;
mod ca_bundle;
mod call;
mod caller;
mod client;
mod code;
mod connector;
mod describe;
mod error;
mod identity;
mod instance;
mod instance_status;
mod intact;
mod lane;
mod look;
mod look_snapshot;
mod modification;
mod mutate;
mod pace;
mod page;
mod poller;
mod pollers;
mod random;
mod read;
mod refill;
mod renewing;
mod request;
mod retry;
mod seen;
mod snapshot;
mod split;
mod status;
mod surroundings;
mod timestamp;
mod trail;
mod turn;
mod usual;
mod volume;
mod zone;
mod zones;

pub use action::{Action, Rate};
pub use caller::Caller;
pub use client::{Ec2, StartError};
pub use code::Ec2ErrorKind;
pub(crate) use error::innermost;
pub use error::{Ec2Error, Sent};
pub use instance::{BlockMapping, Hibernation, Instance, InstanceState, InstanceType};
pub use instance_status::{Check, InstanceStatus};
pub use lane::LaneLevel;
pub use look_snapshot::Locked;
pub use modification::{Modification, ModificationState, Performance};
pub use random::Random;
pub use request::{
    CopyVolume, CreateSnapshot, CreateVolume, Force, IopsQuestion, ListPage, LockSnapshot, MaxIops,
    ModifyVolume, OwnTags, Page, PowerOff, Tags,
};
pub use seen::Seen;
pub use snapshot::{Snapshot, SnapshotState};
pub use status::{Health, Initialization, VolumeStatus};
pub use surroundings::{Settings, Surroundings};
pub use timestamp::Timestamp;
pub use usual::Watched;
pub use volume::{Attachment, AttachmentState, Volume, VolumeState};
pub use zone::{Zone, ZoneKind};
