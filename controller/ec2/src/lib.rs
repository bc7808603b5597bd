//! Access to EC2: few and shared reads, answers that are present, absent or unknown, and changes
//! that are sent once.
//!
//! No type of the AWS SDK leaves this crate, save in [`Surroundings`]. Reads go through shared
//! pollers, one per Describe API (`describe/poller.rs`). Every call goes through its action's lane
//! (`pacing/lane.rs`), whose bucket keeps EC2's own limits. The SDK sends each request once, and
//! `pacing/retry.rs` decides whether it is sent again.

mod action;
mod call;
mod calls;
mod client;
mod csi_failure;
mod describe;
mod error;
mod expiring_cache;
mod model;
mod pacing;
mod sdk;

pub use action::Rate;
pub use call::{Call, Wanted};
pub use calls::*;
pub use client::identity::CallerIdentity;
pub use client::{Ec2, StartError};
pub use error::code::Ec2ErrorKind;
pub use error::{Ec2Error, Sent};
pub use expiring_cache::ExpiringCache;
pub use model::instance::{
    BlockMapping, Hibernation, Instance, InstanceState, InstanceType, Slots,
};
pub use model::instance_status::{Check, InstanceStatus};
pub use model::modification::{Modification, ModificationState, Performance};
pub use model::snapshot::{Snapshot, SnapshotState};
pub use model::timestamp::Timestamp;
pub use model::volume::{Attachment, AttachmentState, Volume, VolumeState};
pub use model::volume_status::{Health, Initialization, VolumeStatus};
pub use model::{DatedLook, LookResult, READ_LAG};
pub use model::{ListPage, Page};
pub use model::{OwnTags, Tags};
pub use pacing::duration_estimate::WatchedChange;
pub use pacing::lane::LaneLevel;
pub use pacing::random::Random;
pub use sdk::error_conversion::innermost;
pub use sdk::settings::{Ec2Settings, Observer, Surroundings};
