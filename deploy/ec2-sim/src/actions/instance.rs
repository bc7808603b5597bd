//! EC2's actions on instances.

pub(super) mod describe_instance_status;
pub(super) mod describe_instance_types;
pub(super) mod describe_instances;
pub(super) mod power;
