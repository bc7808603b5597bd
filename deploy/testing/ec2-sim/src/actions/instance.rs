//! EC2's actions on instances.

pub(super) mod describe_instances;
pub(super) mod power;

use crate::actions::ActionRow;

pub(super) const ROWS: &[&[ActionRow]] = &[describe_instances::ROWS, power::ROWS];
