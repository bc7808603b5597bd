//! EC2's actions on snapshots.

pub(super) mod create_snapshot;
pub(super) mod delete_snapshot;
pub(super) mod describe_snapshots;
pub(super) mod fast_snapshot_restores;
pub(super) mod lock_snapshot;
pub(super) mod snapshot_tier;

use crate::actions::ActionRow;

pub(super) const ROWS: &[&[ActionRow]] = &[
    create_snapshot::ROWS,
    delete_snapshot::ROWS,
    describe_snapshots::ROWS,
    fast_snapshot_restores::ROWS,
    lock_snapshot::ROWS,
    snapshot_tier::ROWS,
];
