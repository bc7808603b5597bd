//! EC2's actions on snapshots.

mod create_snapshot;
mod delete_snapshot;
mod describe_snapshots;
pub(super) mod fast_snapshot_restores;
mod lock_snapshot;

pub(super) use create_snapshot::create_snapshot;
pub(super) use delete_snapshot::delete_snapshot;
pub(super) use describe_snapshots::describe_snapshots;
pub(super) use lock_snapshot::{describe_locked_snapshots, lock_snapshot};
