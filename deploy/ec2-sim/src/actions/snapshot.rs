//! EC2's actions on snapshots.

pub(super) mod create_snapshot;
pub(super) mod delete_snapshot;
pub(super) mod describe_snapshots;
pub(super) mod fast_snapshot_restores;
pub(super) mod lock_snapshot;
pub(super) mod snapshot_tier;
