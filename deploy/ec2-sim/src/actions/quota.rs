//! Limits of the account, and the room in a zone.

use super::Call;
use crate::error::{ApiError, ApiResult};
use crate::resources::modification::{Shape, State};
use crate::resources::snapshot::Life as SnapshotLife;
use crate::resources::volume::Volume;

const GIB_PER_TIB: f64 = 1024.0;

/// Tests whether there is room for another volume of this shape.
///
/// # Errors
/// `VolumeLimitExceeded`, `MaxIOPSLimitExceeded`, `InsufficientVolumeCapacity`.
pub(super) fn volume(call: &Call<'_>, shape: &Shape, zone: &str) -> ApiResult<()> {
    let quotas = &call.rules.quotas;
    let kind = shape.volume_type.as_str();
    let of_type = |v: &&Volume| !v.root && !v.deleting() && v.shape.volume_type == kind;
    if let Some(tib) = quotas.storage_tib.get(kind) {
        let used: u64 = call
            .realm
            .volumes()
            .values()
            .filter(of_type)
            .map(size)
            .sum();
        if as_f64(used + u64::from(shape.size)) > tib * GIB_PER_TIB {
            return Err(ApiError::client(
                "VolumeLimitExceeded",
                format!(
                    "You have exceeded your maximum {kind} storage limit of {tib} TiB in this region. Please contact AWS Support to request an Elastic Block Store service limit increase."
                ),
            ));
        }
    }
    if let Some(most) = quotas.iops.get(kind) {
        let iops = |v: &Volume| u64::from(v.shape.iops.unwrap_or(0));
        let used: u64 = call
            .realm
            .volumes()
            .values()
            .filter(of_type)
            .map(iops)
            .sum();
        if used + u64::from(shape.iops.unwrap_or(0)) > *most {
            // unverified wording.
            return Err(ApiError::client(
                "MaxIOPSLimitExceeded",
                format!(
                    "You have exceeded your maximum {kind} IOPS limit of {most} in this region. Please contact AWS Support to request an Elastic Block Store service limit increase."
                ),
            ));
        }
    }
    for c in &quotas.capacity {
        if c.zone != zone || c.volume_type.as_deref().is_some_and(|t| t != kind) {
            continue;
        }
        let here = |v: &&Volume| v.zone == zone;
        let used: u64 = call
            .realm
            .volumes()
            .values()
            .filter(of_type)
            .filter(here)
            .map(size)
            .sum();
        if used + u64::from(shape.size) > c.gib {
            // unverified status and wording.
            return Err(ApiError::new(
                c.status,
                "InsufficientVolumeCapacity",
                format!(
                    "There is not enough capacity to fulfill your EBS volume create request for {kind} in {zone}. Try again later or create a volume in a different availability zone."
                ),
            ));
        }
    }
    Ok(())
}

/// Tests whether another volume can be initialized at a rate.
///
/// # Errors
/// `VolumeInitializationRateLimitExceeded`: code and wording unverified.
pub(super) fn initialization(call: &Call<'_>, rate: u32) -> ApiResult<()> {
    let most = call.rules.quotas.initialization_rate;
    let used: u32 = call
        .realm
        .volumes()
        .values()
        .filter(|v| v.initialized_percent(call.now) < 100)
        .filter_map(|v| v.initialization_rate)
        .sum();
    if used.saturating_add(rate) <= most {
        return Ok(());
    }
    Err(ApiError::client(
        "VolumeInitializationRateLimitExceeded",
        format!(
            "The cumulative volume initialization rate of {most} MiB/s in this region would be exceeded."
        ),
    ))
}

/// Tests whether there can be another snapshot of a volume. Wordings unverified.
///
/// # Errors
/// `ConcurrentSnapshotLimitExceeded`, `PendingSnapshotLimitExceeded`, `SnapshotLimitExceeded`.
pub(super) fn snapshot(call: &Call<'_>, v: &Volume) -> ApiResult<()> {
    let quotas = &call.rules.quotas;
    let all = call.realm.snapshots();
    let (mut pending, mut of_volume) = (0, 0);
    for s in all
        .values()
        .filter(|s| matches!(s.life, SnapshotLife::Pending { .. }))
    {
        pending += 1;
        of_volume += usize::from(s.volume == v.id);
    }
    let concurrent = match v.shape.volume_type.as_str() {
        "st1" | "sc1" => quotas.concurrent_snapshots.min(1),
        _ => quotas.concurrent_snapshots,
    };
    let exceeded = |code: &str, what: String| Err(ApiError::client(code, what));
    if of_volume >= concurrent {
        return exceeded(
            "ConcurrentSnapshotLimitExceeded",
            format!(
                "The maximum of {concurrent} pending snapshots of volume {} has been reached.",
                v.id
            ),
        );
    }
    if quotas.pending_snapshots.is_some_and(|most| pending >= most) {
        return exceeded(
            "PendingSnapshotLimitExceeded",
            format!("The maximum of {pending} pending snapshots in this region has been reached."),
        );
    }
    if all.len() >= quotas.snapshots {
        return exceeded(
            "SnapshotLimitExceeded",
            format!(
                "The maximum of {} snapshots in this region has been reached.",
                quotas.snapshots
            ),
        );
    }
    Ok(())
}

/// Tests whether another volume of this shape can be under modification. Wording unverified.
///
/// # Errors
/// `VolumeModificationSizeLimitExceeded`.
pub(super) fn modification(call: &Call<'_>, target: &Shape) -> ApiResult<()> {
    let kind = target.volume_type.as_str();
    let Some(tib) = call.rules.quotas.modification_tib.get(kind) else {
        return Ok(());
    };
    let under_way = |v: &&Volume| {
        v.modification.as_ref().is_some_and(|m| {
            matches!(m.state, State::Modifying | State::Optimizing) && m.target.volume_type == kind
        })
    };
    let used: u64 = call
        .realm
        .volumes()
        .values()
        .filter(under_way)
        .map(size)
        .sum();
    if as_f64(used + u64::from(target.size)) <= tib * GIB_PER_TIB {
        return Ok(());
    }
    Err(ApiError::client(
        "VolumeModificationSizeLimitExceeded",
        format!(
            "You have exceeded your maximum {kind} modification storage limit of {tib} TiB in this region. Please contact AWS Support to request an Elastic Block Store service limit increase."
        ),
    ))
}

fn size(v: &Volume) -> u64 {
    u64::from(v.shape.size)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "GiB of an account are far below 2^53"
)]
fn as_f64(gib: u64) -> f64 {
    gib as f64
}
