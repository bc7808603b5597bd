//! ModifySnapshotTier and RestoreSnapshotTier: the archive tier. Only the owner of an account uses
//! them, so the simulator knows the permanent restore alone.

use crate::actions::{ActionRow, Call};
use crate::state::resources::{Archival, Snapshot, SnapshotState};
use crate::wire::{ApiError, ApiResult, Xml, refuse, refuse_value};

pub(crate) const ROWS: &[ActionRow] = &[
    ("ModifySnapshotTier", archive, "SnapshotId={snapshot}&StorageTier=archive"),
    ("RestoreSnapshotTier", restore, "SnapshotId={snapshot}&PermanentRestore=true"),
];

/// Moves a snapshot to the archive. The snapshot can be used until it is there. Codes and wordings
/// unverified.
fn archive(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.required("SnapshotId", "SnapshotId")?;
    let tier = p.text("StorageTier");
    p.finish()?;
    if tier != Some("archive") {
        refuse_value!("Value ({}) for parameter storageTier is invalid.", tier.unwrap_or(""));
    }
    let s = permitted(call, id)?;
    let is_away =
        s.archival.as_ref().is_some_and(|a| a.restored.is_none_or(|restored| restored > call.now));
    if is_away || !matches!(s.life, SnapshotState::Completed { .. }) {
        refuse!("IncorrectState", "The snapshot '{id}' cannot be archived now.");
    }
    let archived = call.begin.plus(call.latency.sample("snapshot_archive"));
    call.realm.update_snapshot(id, |s| s.archival = Some(Archival { archived, restored: None }));
    call.realm.fast_restores.retain(|(snapshot, _)| snapshot != id);
    Ok(members(call, id, "tieringStartTime"))
}

/// Brings a snapshot back from the archive. Codes and wordings unverified.
fn restore(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.required("SnapshotId", "SnapshotId")?;
    let permanent = p.boolean("PermanentRestore")?;
    p.finish()?;
    if permanent != Some(true) {
        return Err(ApiError::missing("PermanentRestore"));
    }
    if !permitted(call, id)?.is_archived(call.now) {
        refuse!("IncorrectState", "The snapshot '{id}' is not archived.");
    }
    let restored = call.begin.plus(call.latency.sample("snapshot_restore"));
    call.realm.update_snapshot(id, |s| {
        if let Some(a) = &mut s.archival {
            a.restored = Some(restored);
        }
    });
    Ok(members(call, id, "restoreStartTime"))
}

fn permitted<'a>(call: &'a Call<'_>, id: &str) -> ApiResult<&'a Snapshot> {
    Call::check_snapshot_id(id)?;
    call.permit_on(id)?;
    call.dry_run()?;
    call.realm.snapshot(id)
}

fn members(call: &mut Call<'_>, id: &str, time: &str) -> String {
    call.effects.push(id.to_owned());
    let mut x = Xml::default();
    x.text("snapshotId", id).text(time, &call.now.iso());
    x.finish()
}
