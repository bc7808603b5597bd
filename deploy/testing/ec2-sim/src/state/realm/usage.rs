//! An account's usage of its quotas, against which calls are checked before they are accepted.

use super::Realm;
use crate::state::resources::{ModificationState, Origin, Shape, SnapshotState, Volume};
use crate::time::Millis;

/// Returns the shapes that count for a volume: the current one, and the target of an accepted
/// modification.
fn shapes(v: &Volume) -> impl Iterator<Item = &Shape> {
    let coming = v
        .modification
        .as_ref()
        .filter(|m| m.state == ModificationState::Modifying)
        .map(|m| &m.target);
    std::iter::once(&v.shape).chain(coming)
}

/// Returns the largest amount among a volume's shapes of one type.
fn claim(v: &Volume, kind: &str, of: impl Fn(&Shape) -> u64) -> u64 {
    shapes(v).filter(|s| s.volume_type == kind).map(of).max().unwrap_or(0)
}

/// Returns the volumes that count: neither `root` volumes nor volumes being deleted.
fn counted(realm: &Realm) -> impl Iterator<Item = &Volume> {
    realm.volumes().values().filter(|v| !v.root && !v.deleting())
}

/// Returns the sum of an amount over the volumes of a type, in one zone or in all; one volume can
/// be left out.
pub(crate) fn sum(
    realm: &Realm,
    kind: &str,
    zone: Option<&str>,
    without: Option<&str>,
    amount: fn(&Shape) -> u64,
) -> u64 {
    counted(realm)
        .filter(|v| zone.is_none_or(|z| v.zone == z) && without != Some(v.id.as_str()))
        .map(|v| claim(v, kind, amount))
        .sum()
}

pub(crate) fn copies(realm: &Realm, now: Millis) -> impl Iterator<Item = &Volume> {
    realm
        .volumes()
        .values()
        .filter(move |v| matches!(v.origin, Origin::Volume(_)) && v.initialized_percent(now) < 100)
}

/// Returns the number of pending snapshots, of one volume or of all.
pub(crate) fn pending_snapshots(realm: &Realm, of: Option<&str>) -> usize {
    realm
        .snapshots()
        .values()
        .filter(|s| {
            matches!(s.life, SnapshotState::Pending { .. }) && of.is_none_or(|v| s.volume == v)
        })
        .count()
}
