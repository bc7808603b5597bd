//! EC2's actions on instances.

mod describe_instance_status;
mod describe_instance_types;
mod describe_instances;
pub(super) mod power;

pub(super) use describe_instance_status::describe_instance_status;
pub(super) use describe_instance_types::describe_instance_types;
pub(super) use describe_instances::describe_instances;
