//! DeleteSnapshot.

use crate::actions::{ActionRow, Call};
use crate::wire::{ApiResult, refuse};

pub(crate) const ROWS: &[ActionRow] = &[("DeleteSnapshot", answer, "SnapshotId={snapshot}")];

fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.required("SnapshotId", "SnapshotId")?;
    p.finish()?;
    Call::check_snapshot_id(id)?;
    let s = call.realm.snapshot(id)?;
    call.permit_on(id)?;
    call.dry_run()?;
    if s.locked(call.now).is_some() {
        // unverified code and wording.
        refuse!("SnapshotLocked", "The snapshot '{id}' is locked and cannot be deleted.");
    }
    call.devices.delete_snapshot(id).map_err(|e| Call::internal(&e))?;
    call.realm.remove_snapshot(id);
    call.realm.fast_restores.retain(|(snapshot, _)| snapshot != id);
    call.effects.push(id.to_owned());
    Ok("<return>true</return>".to_owned())
}
