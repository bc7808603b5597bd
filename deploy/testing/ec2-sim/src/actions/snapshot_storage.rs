//! Fast restores, whose EnableFastSnapshotRestores answers with status 200 and lists failures in
//! the body; locks; and the archive tier. Only the owner of an account uses that, so the simulator
//! knows the permanent restore alone.

use super::describe_query::by_ids;
use super::{Call, EXISTING, Keys, Row};
use crate::faults::Fault;
use crate::iam::condition::Context;
use crate::state::resources::{Archival, Lock, LockEnd, Snapshot, SnapshotState};
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Filters, Xml, refuse, refuse_combination, refuse_value};

const LOCKED: Keys = &[
    "aws:ResourceTag/",
    "ec2:ResourceTag/",
    "ec2:SnapshotLockDuration",
    "ec2:SnapshotCoolOffPeriod",
];

pub(super) const ACTIONS: &[Row] = &[
    ("DescribeFastSnapshotRestores", describe_fast, "", &[]),
    ("DescribeLockedSnapshots", describe_locked, "", &[]),
    (
        "EnableFastSnapshotRestores",
        enable,
        "SourceSnapshotId.1={snapshot}&AvailabilityZone.1=us-east-1a",
        &[("snapshot", EXISTING)],
    ),
    (
        "LockSnapshot",
        lock,
        "SnapshotId={snapshot}&LockMode=governance&LockDuration=2",
        &[("snapshot", LOCKED)],
    ),
    (
        "ModifySnapshotTier",
        archive,
        "SnapshotId={snapshot}&StorageTier=archive",
        &[("snapshot", EXISTING)],
    ),
    (
        "RestoreSnapshotTier",
        restore,
        "SnapshotId={snapshot}&PermanentRestore=true",
        &[("snapshot", EXISTING)],
    ),
    ("UnlockSnapshot", unlock, "SnapshotId={snapshot}", &[("snapshot", EXISTING)]),
];

fn enable(call: &mut Call<'_>) -> ApiResult<String> {
    let (snapshots, zones) = parse_fast(call)?;
    let (mut enabled, mut refused) = (Vec::new(), Vec::new());
    for snapshot in snapshots {
        for zone in &zones {
            match check_fast(call, snapshot, zone) {
                Ok(()) => {
                    call.effects.push(format!("{snapshot}/{zone}"));
                    let key = (snapshot.to_owned(), (*zone).to_owned());
                    call.realm.fast_restores.insert(key.clone());
                    enabled.push(key);
                }
                Err(error) => refused.push((snapshot, zone, error)),
            }
        }
    }
    let mut x = Xml::default();
    x.list("successful", &enabled, member);
    x.list("unsuccessful", &refused, |x, (snapshot, zone, error)| {
        let set = "fastSnapshotRestoreStateErrorSet";
        x.text("snapshotId", snapshot).list(set, [error], |x, error| {
            x.text("availabilityZone", zone)
                .nest("error", |x| x.text("code", &error.code).text("message", &error.message))
        })
    });
    Ok(x.finish())
}

/// Checks one snapshot in one zone. The codes of the errors are unverified.
fn check_fast(call: &Call<'_>, snapshot: &str, zone: &str) -> ApiResult<()> {
    for fault in call.faults {
        if let Fault::Unsuccessful { code, message } = fault {
            return Err(ApiError::client(code, message.as_str()));
        }
    }
    if call.realm.snapshot(snapshot)?.is_archived(call.now) {
        refuse!("IncorrectState", "The snapshot is archived.");
    }
    call.zone(Some(zone), None).map(drop)
}

fn parse_fast<'a>(call: &Call<'a>) -> ApiResult<(Vec<&'a str>, Vec<&'a str>)> {
    let p = call.params;
    let (zones, snapshots) = (p.list("AvailabilityZone"), p.list("SourceSnapshotId"));
    p.finish()?;
    snapshots.iter().try_for_each(|id| Call::check_snapshot_id(id))?;
    for (name, values) in [("SourceSnapshotId", &snapshots), ("AvailabilityZone", &zones)] {
        if values.is_empty() {
            return Err(ApiError::missing(name));
        }
    }
    call.permit(|c| snapshots.iter().map(|id| c.existing(id)).collect())?;
    call.dry_run()?;
    Ok((snapshots, zones))
}

fn member<'x>(x: &'x mut Xml, (snapshot, zone): &(String, String)) -> &'x mut Xml {
    x.text("snapshotId", snapshot).text("availabilityZone", zone).text("state", "enabled")
}

fn describe_fast(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let filters = Filters::parse(call.params, &["snapshot-id"])?;
    call.params.finish()?;
    let all = call.realm.fast_restores.iter();
    let shown = all.filter(|(snapshot, _)| filters.accept(|_| vec![snapshot.clone()]));
    Ok(Xml::default().list("fastSnapshotRestoreSet", shown, member).finish())
}

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
    // Whether EC2 gives the duration of a lock that has a date is unverified.
    call.permit(|c| {
        let with = |keys: &mut Context| {
            for (key, value) in
                [("ec2:SnapshotLockDuration", days), ("ec2:SnapshotCoolOffPeriod", cool_off)]
            {
                keys.set_all(key, value.iter().map(u32::to_string).collect());
            }
        };
        vec![c.existing(id).with(with)]
    })?;
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
    let members = Xml::default().lock(s, &lock, now).finish();
    call.realm.update_snapshot(id, |s| s.lock = Some(lock));
    call.effects.push(id.to_owned());
    Ok(members)
}

/// Parses the end of a lock. A date has to be in the future (EBS User Guide, "Lock duration").
fn end(now: Millis, days: Option<u32>, date: Option<&str>) -> ApiResult<LockEnd> {
    match (days, date) {
        (Some(days), None) if days <= 36_500 => Ok(LockEnd::Days(days)),
        (Some(_), None) => refuse_value!(
            "The value specified for LockDuration is not in the allowed range: 1 to 36500 days."
        ),
        (None, Some(text)) => match Millis::parse(text) {
            Some(at) if at > now => Ok(LockEnd::Date(at)),
            _ => refuse_value!(
                "Value ({text}) for parameter expirationDate is invalid. It must be in the future."
            ),
        },
        (Some(_), Some(_)) => refuse_combination!(
            "The parameters LockDuration and ExpirationDate cannot be specified together"
        ),
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
    Ok(Xml::default().text("snapshotId", id).finish())
}

fn describe_locked(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let ids = call.params.list("SnapshotId");
    call.params.finish()?;
    ids.iter().try_for_each(|id| Call::check_snapshot_id(id))?;
    let named = by_ids(call, call.realm.snapshots(), &ids, ApiError::no_snapshots)?;
    let locked = named.into_iter().filter_map(|(_, s)| Some((s, s.lock.as_ref()?)));
    let mut x = Xml::default();
    x.list("snapshotSet", locked, |x, (s, l)| {
        x.text("ownerId", &call.realm.account).lock(s, l, call.now)
    });
    Ok(x.finish())
}

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
    Xml::default().text("snapshotId", id).text(time, &call.now.iso()).finish()
}
