//! Fulfils the promise of a snapshot.

use ebs_csi_ec2::{self as ec2, Call, Ec2, Ec2Error, Ec2ErrorKind, Locked};
use ebs_csi_parameters::{Lock, LockMode};
use ebs_csi_proto::Failure;
use ebs_csi_wire::SnapshotId;

use super::promise::Promise;
use crate::csi_failure::failure;

/// Enables the fast restores and sets the lock that a snapshot is promised. For a snapshot that was
/// found, sets only what is missing.
pub(super) async fn fulfil(
    ec2: &Ec2,
    call: &Call,
    snapshot: &SnapshotId,
    promise: &Promise,
    found: bool,
) -> Result<(), Failure> {
    let describe = |what: &str, error: &Ec2Error| {
        failure(error).context(format!("snapshot {snapshot}: {what}"))
    };
    if !promise.zones.is_empty() {
        let zones = match found {
            true => missing_zones(ec2, call, snapshot, &promise.zones).await,
            false => Ok(promise.zones.clone()),
        }
        .map_err(|error| describe("which fast restores are enabled is not known", &error))?;
        if !zones.is_empty() {
            ec2.enable_fast_snapshot_restores(call, snapshot, &zones)
                .await
                .map_err(|error| describe("fast restores are not enabled", &error))?;
        }
    }
    if let Some(lock) = &promise.lock {
        let has_lock = found
            && is_locked(ec2, call, snapshot, lock)
                .await
                .map_err(|error| describe("whether it is locked is not known", &error))?;
        if !has_lock {
            let request = ec2::LockSnapshot {
                snapshot: snapshot.clone(),
                mode: lock.mode.as_str().to_owned(),
                duration_days: lock.duration_days,
                expires: lock.expiration.map(ec2::Timestamp::from),
                cool_off_hours: lock.cool_off_hours,
            };
            ec2.lock_snapshot(call, &request)
                .await
                .map_err(|error| describe("it is not locked", &error))?;
        }
    }
    Ok(())
}

async fn missing_zones(
    ec2: &Ec2,
    call: &Call,
    snapshot: &SnapshotId,
    wanted: &[String],
) -> Result<Vec<String>, Ec2Error> {
    let enabled = match ec2.fast_restore_zones(call, snapshot).await {
        Err(error) if error.kind == Ec2ErrorKind::Unauthorized => {
            return Ok(warn_and_assume(wanted, &error));
        }
        answer => answer?,
    };
    Ok(wanted.iter().filter(|zone| !enabled.contains(zone)).cloned().collect())
}

/// Returns whether the snapshot has the promised lock. An expired lock counts as kept; a weaker
/// lock than the promised one does not count.
async fn is_locked(
    ec2: &Ec2,
    call: &Call,
    snapshot: &SnapshotId,
    promised: &Lock,
) -> Result<bool, Ec2Error> {
    match ec2.snapshot_lock(call, snapshot).await {
        Err(error) if error.kind == Ec2ErrorKind::Unauthorized => {
            Ok(warn_and_assume(&false, &error))
        }
        Err(error) => Err(error),
        Ok(None) => Ok(false),
        Ok(Some(Locked::Compliance | Locked::Expired)) => Ok(true),
        Ok(Some(Locked::Governance)) => Ok(promised.mode == LockMode::Governance),
    }
}

/// Logs the refused look and returns `all`: IAM policies written for the Go driver do not allow the
/// look, and setting the same again does no harm.
fn warn_and_assume<T: ToOwned + ?Sized>(all: &T, error: &Ec2Error) -> T::Owned {
    tracing::warn!(%error, "what a snapshot has already is not known; it is set again");
    all.to_owned()
}
