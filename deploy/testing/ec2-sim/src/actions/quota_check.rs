//! The account's quotas, and the capacity of a zone.

use super::Call;
use crate::state::Realm;
use crate::state::resources::{
    Modification, ModificationState, Origin, Shape, SnapshotState, Volume,
};
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, refuse};

/// Checks that there is room for this volume to become larger, faster or of another type. That EC2
/// counts the modified volume like a new volume is unverified.
pub(super) fn reshape(call: &Call<'_>, v: &Volume, target: &Shape) -> ApiResult<()> {
    let same = v.shape.volume_type == target.volume_type;
    // A modification that needs no more than the volume already has is never refused, even in a
    // full account.
    if v.root || (same && target.size <= v.shape.size && target.iops <= v.shape.iops) {
        return Ok(());
    }
    volume(call, target, &v.zone, Some(&v.id))
}

/// Checks that there is room for a volume of this shape, beside all others but `without`.
pub(super) fn volume(
    call: &Call<'_>,
    shape: &Shape,
    zone: &str,
    without: Option<&str>,
) -> ApiResult<()> {
    let quotas = call.quotas;
    let kind = shape.volume_type.as_str();
    let size = u64::from(shape.size);
    if let Some(tib) = quotas.storage_tib.get(kind) {
        let used = sum(call.realm, kind, None, without, |s| u64::from(s.size));
        if (used + size) as f64 > tib * 1024.0 {
            refuse!(
                "VolumeLimitExceeded",
                "You have exceeded your maximum {kind} storage limit of {tib} TiB in this region. Please contact AWS Support to request an Elastic Block Store service limit increase."
            );
        }
    }
    if let Some(most) = quotas.iops.get(kind) {
        let used = sum(call.realm, kind, None, without, iops);
        if used + iops(shape) > *most {
            // unverified wording.
            refuse!(
                "MaxIOPSLimitExceeded",
                "You have exceeded your maximum {kind} IOPS limit of {most} in this region. Please contact AWS Support to request an Elastic Block Store service limit increase."
            );
        }
    }
    for c in quotas.capacity.iter().filter(|c| c.zone == zone) {
        let used = sum(call.realm, kind, Some(zone), without, |s| u64::from(s.size));
        if used + size > c.gib {
            // unverified status and wording.
            let message = format!(
                "There is not enough capacity to fulfill your EBS volume create request for {kind} in {zone}. Try again later or create a volume in a different availability zone."
            );
            return Err(ApiError::new(c.status, "InsufficientVolumeCapacity", message));
        }
    }
    Ok(())
}

fn iops(shape: &Shape) -> u64 {
    u64::from(shape.iops.unwrap_or(0))
}

/// Checks that another snapshot of a volume is possible, after `before` other snapshots of the same
/// request. Wordings unverified.
pub(super) fn snapshot(call: &Call<'_>, v: &Volume, before: usize) -> ApiResult<()> {
    let quotas = call.quotas;
    let pending = pending_snapshots(call.realm, None) + before;
    let of_volume = pending_snapshots(call.realm, Some(&v.id));
    let concurrent = quotas.concurrent_snapshots_of(&v.shape.volume_type);
    if of_volume >= concurrent {
        let id = &v.id;
        refuse!(
            "ConcurrentSnapshotLimitExceeded",
            "The maximum of {concurrent} pending snapshots of volume {id} has been reached."
        );
    }
    if quotas.pending_snapshots.is_some_and(|most| pending >= most) {
        refuse!(
            "PendingSnapshotLimitExceeded",
            "The maximum of {pending} pending snapshots in this region has been reached."
        );
    }
    Ok(())
}

/// Returns the sum of an amount over the volumes of a type, in one zone or in all, but `without`. A
/// volume counts with its shape or with the target of an accepted modification, whichever is more;
/// `root` volumes and volumes being deleted do not count.
fn sum(
    realm: &Realm,
    kind: &str,
    zone: Option<&str>,
    without: Option<&str>,
    amount: fn(&Shape) -> u64,
) -> u64 {
    let counted = realm.volumes().values().filter(|v| !v.root && !v.deleting());
    counted
        .filter(|v| zone.is_none_or(|z| v.zone == z) && without != Some(v.id.as_str()))
        .map(|v| {
            let is_coming = |m: &&Modification| m.state == ModificationState::Modifying;
            let coming = v.modification.as_ref().filter(is_coming).map(|m| &m.target);
            let shapes = std::iter::once(&v.shape).chain(coming);
            shapes.filter(|s| s.volume_type == kind).map(amount).max().unwrap_or(0)
        })
        .sum()
}

pub(super) fn copies(realm: &Realm, now: Millis) -> impl Iterator<Item = &Volume> {
    let copies = realm.volumes().values().filter(|v| matches!(v.origin, Origin::Volume(_)));
    copies.filter(move |v| v.initialized_percent(now) < 100)
}

fn pending_snapshots(realm: &Realm, of: Option<&str>) -> usize {
    let all = realm.snapshots().values().filter(|s| of.is_none_or(|v| s.volume == v));
    all.filter(|s| matches!(s.life, SnapshotState::Pending { .. })).count()
}
