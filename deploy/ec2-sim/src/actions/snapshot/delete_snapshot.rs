//! DeleteSnapshot.

use crate::actions::Call;
use crate::time::Millis;
use crate::wire::api_error::{ApiError, ApiResult};

pub(crate) fn delete_snapshot(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.required("SnapshotId", "SnapshotId")?;
    let dry_run = call.wants_dry_run()?;
    p.finish()?;
    Call::check_snapshot_id(id)?;
    let s = call
        .realm
        .snapshots()
        .get(id)
        .ok_or_else(|| ApiError::no_snapshot(id))?;
    call.permit_on(id)?;
    if dry_run {
        return Err(ApiError::dry_run());
    }
    if s.locked(call.now).is_some() {
        // unverified code and wording.
        return Err(ApiError::client(
            "SnapshotLocked",
            format!("The snapshot '{id}' is locked and cannot be deleted."),
        ));
    }
    call.devices
        .delete_snapshot(id)
        .map_err(|e| Call::internal(&e))?;
    call.realm.remove_snapshot(id);
    let zones: Vec<_> = call
        .realm
        .fast_restores()
        .values()
        .filter(|f| f.snapshot == id && f.disabled.is_none())
        .cloned()
        .collect();
    let now: Millis = call.now;
    for mut f in zones {
        f.disabled = Some((now, now));
        call.realm.put_fast_restore(f);
    }
    call.effects.push(id.to_owned());
    Ok("<return>true</return>".to_owned())
}
