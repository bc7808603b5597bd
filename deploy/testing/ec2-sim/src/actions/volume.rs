//! EC2's actions on volumes.

pub(super) mod attach_volume;
pub(super) mod copy_volumes;
pub(super) mod create_volume;
pub(super) mod delete_volume;
pub(super) mod describe_volumes;
pub(super) mod detach_volume;
pub(super) mod modify_volume;

use crate::actions::ActionRow;

pub(super) const ROWS: &[&[ActionRow]] = &[
    attach_volume::ROWS,
    copy_volumes::ROWS,
    create_volume::ROWS,
    delete_volume::ROWS,
    describe_volumes::ROWS,
    detach_volume::ROWS,
    modify_volume::ROWS,
];
