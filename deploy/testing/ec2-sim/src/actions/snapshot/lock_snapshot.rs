//! LockSnapshot, UnlockSnapshot and DescribeLockedSnapshots.

use crate::actions::describe_query::by_ids;
use crate::actions::{ActionRow, Call, render};
use crate::state::resources::{Lock, LockEnd};
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Xml, refuse, refuse_combination, refuse_value};

pub(crate) const ROWS: &[ActionRow] = &[
    ("DescribeLockedSnapshots", describe_locked, ""),
    ("LockSnapshot", lock, "SnapshotId={snapshot}&LockMode=governance&LockDuration=2"),
    ("UnlockSnapshot", unlock, "SnapshotId={snapshot}"),
];

/// Wordings unverified.
fn lock(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.required("SnapshotId", "SnapshotId")?;
    let mode = p.required("LockMode", "LockMode")?;
    let cool_off = p.positive("CoolOffPeriod")?;
    let days = p.positive("LockDuration")?;
    let expiration = p.text("ExpirationDate");
    p.finish()?;
    Call::check_snapshot_id(id)?;
    let compliance = match mode {
        "compliance" => true,
        "governance" => false,
        other => {
            refuse_value!(
                "Value ({other}) for parameter lockMode is invalid. Valid values: compliance, governance."
            );
        }
    };
    if cool_off.is_some() && !compliance {
        refuse_combination!(
            "The parameter CoolOffPeriod can only be specified with lock mode compliance"
        );
    }
    if cool_off.is_some_and(|h| h > 72) {
        refuse_value!(
            "The value specified for CoolOffPeriod is not in the allowed range: 1 to 72 hours."
        );
    }
    let end = end(call.now, days, expiration)?;
    call.permit_on(id)?;
    call.dry_run()?;
    let now = call.now;
    let s = call.realm.snapshot(id)?;
    let lock = Lock { compliance, cool_off_hours: cool_off.unwrap_or(0), created: now, end };
    if let Some(l) = s.locked(now)
        && s.lock_state(l, now) == "compliance"
        && s.lock_expiry(&lock) < s.lock_expiry(l)
    {
        refuse!(
            "OperationNotPermitted",
            "The snapshot '{id}' is locked in compliance mode: the lock can only be extended."
        );
    }
    let mut x = Xml::default();
    render::lock(&mut x, s, &lock, now);
    call.realm.update_snapshot(id, |s| s.lock = Some(lock));
    call.effects.push(id.to_owned());
    Ok(x.finish())
}

/// Parses the end of a lock. A date has to be in the future (EBS User Guide, "Lock duration").
fn end(now: Millis, days: Option<u32>, date: Option<&str>) -> ApiResult<LockEnd> {
    match (days, date) {
        (Some(days), None) if days <= 36_500 => Ok(LockEnd::Days(days)),
        (Some(_), None) => Err(ApiError::value(
            "The value specified for LockDuration is not in the allowed range: 1 to 36500 days.",
        )),
        (None, Some(text)) => match Millis::parse(text) {
            Some(at) if at > now => Ok(LockEnd::Date(at)),
            _ => Err(ApiError::value(format!(
                "Value ({text}) for parameter expirationDate is invalid. It must be in the future."
            ))),
        },
        (Some(_), Some(_)) => Err(ApiError::combination(
            "The parameters LockDuration and ExpirationDate cannot be specified together",
        )),
        (None, None) => Err(ApiError::missing("LockDuration/ExpirationDate")),
    }
}

/// Removes a lock in governance mode, or in compliance mode within the cooling-off period. Codes
/// and wordings unverified.
fn unlock(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.required("SnapshotId", "SnapshotId")?;
    p.finish()?;
    Call::check_snapshot_id(id)?;
    call.permit_on(id)?;
    call.dry_run()?;
    let s = call.realm.snapshot(id)?;
    match s.locked(call.now) {
        None => refuse!("IncorrectState", "The snapshot '{id}' is not locked."),
        Some(l) if s.lock_state(l, call.now) == "compliance" => refuse!(
            "OperationNotPermitted",
            "The snapshot '{id}' is locked in compliance mode: it can't be unlocked."
        ),
        Some(_) => {}
    }
    call.realm.update_snapshot(id, |s| s.lock = None);
    call.effects.push(id.to_owned());
    let mut x = Xml::default();
    x.text("snapshotId", id);
    Ok(x.finish())
}

fn describe_locked(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let ids = call.params.list("SnapshotId");
    call.params.finish()?;
    ids.iter().try_for_each(|id| Call::check_snapshot_id(id))?;
    let named = by_ids(call, call.realm.snapshots(), &ids, ApiError::no_snapshots)?;
    let locked = named.into_iter().filter_map(|s| Some((s, s.lock.as_ref()?)));
    let mut x = Xml::default();
    x.list("snapshotSet", locked, |x, (s, l)| {
        x.text("ownerId", &call.realm.account);
        render::lock(x, s, l, call.now);
    });
    Ok(x.finish())
}
