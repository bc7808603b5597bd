//! EC2's actions on instances.

pub(super) mod describe_instances;
pub(super) mod power;
