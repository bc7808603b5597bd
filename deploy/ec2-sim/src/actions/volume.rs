//! EC2's actions on volumes.

mod attach_volume;
mod copy_volumes;
mod create_volume;
mod delete_volume;
mod describe_volume_status;
mod describe_volumes;
mod describe_volumes_modifications;
mod detach_volume;
mod modify_volume;

pub(super) use attach_volume::attach_volume;
pub(super) use copy_volumes::copy_volumes;
pub(super) use create_volume::create_volume;
pub(super) use delete_volume::delete_volume;
pub(super) use describe_volume_status::describe_volume_status;
pub(super) use describe_volumes::describe_volumes;
pub(super) use describe_volumes_modifications::describe_volumes_modifications;
pub(super) use detach_volume::detach_volume;
pub(super) use modify_volume::modify_volume;
