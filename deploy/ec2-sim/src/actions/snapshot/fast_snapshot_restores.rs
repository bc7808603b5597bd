//! EnableFastSnapshotRestores and DescribeFastSnapshotRestores. The first answers with status 200
//! and lists failures in the body.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::faults::kind::Fault;
use crate::state::resources::fast_restore::FastRestore;
use crate::time::Millis;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::xml::Xml;

pub(crate) fn enable(call: &mut Call<'_>) -> ApiResult<String> {
    let (snapshots, zones) = parse(call)?;
    let (mut enabled, mut refused) = (Vec::new(), Vec::new());
    for snapshot in snapshots {
        for zone in &zones {
            match enable_one(call, snapshot, zone) {
                Ok(f) => {
                    let key = format!("{snapshot}/{zone}");
                    call.effects.push(key.clone());
                    call.realm.fast_restores.insert(key, f.clone());
                    enabled.push(f);
                }
                Err(error) => refused.push((snapshot, zone, error)),
            }
        }
    }
    let mut x = Xml::new();
    x.list("successful", &enabled, |x, f| member(call, x, f));
    x.list("unsuccessful", &refused, |x, (snapshot, zone, error)| {
        let set = "fastSnapshotRestoreStateErrorSet";
        x.text("snapshotId", snapshot).list(set, [()], |x, ()| {
            x.text("availabilityZone", zone)
                .text("availabilityZoneId", call.realm.zone_id(zone))
                .nest("error", |x| {
                    x.text("code", &error.code).text("message", &error.message);
                });
        });
    });
    Ok(x.finish())
}

/// Enables one snapshot in one zone. The codes of the errors are unverified.
fn enable_one(call: &mut Call<'_>, snapshot: &str, zone: &str) -> ApiResult<FastRestore> {
    for fault in call.faults {
        if let Fault::Unsuccessful { code, message } = fault {
            return Err(ApiError::client(code, message.as_str()));
        }
    }
    let size = call.realm.snapshot(snapshot)?.size;
    call.zone(Some(zone), None)?;
    let existing = call.realm.fast_restores.get(&format!("{snapshot}/{zone}"));
    if let Some(f) = existing {
        return Ok(f.clone());
    }
    let optimizing = call.begin.plus(call.latency.sample("fsr_optimizing"));
    let enabled = optimizing.plus(call.latency.per_tib("fsr_enabled_per_tib", size));
    Ok(FastRestore {
        snapshot: snapshot.to_owned(),
        zone: zone.to_owned(),
        enabling: call.now,
        optimizing,
        enabled,
    })
}

fn parse<'a>(call: &Call<'a>) -> ApiResult<(Vec<&'a str>, Vec<String>)> {
    let p = call.params;
    let names = p.list("AvailabilityZone");
    let ids = p.list("AvailabilityZoneId");
    let snapshots = p.list("SourceSnapshotId");
    p.finish()?;
    for id in &snapshots {
        Call::check_snapshot_id(id)?;
    }
    if snapshots.is_empty() {
        return Err(ApiError::missing("SourceSnapshotId"));
    }
    let zones: Vec<String> = if names.is_empty() {
        let by_id = |id: &&str| call.zone(None, Some(id));
        ids.iter().map(by_id).collect::<ApiResult<_>>()?
    } else {
        names.iter().map(|n| (*n).to_owned()).collect()
    };
    if zones.is_empty() {
        return Err(ApiError::missing("AvailabilityZone"));
    }
    call.permit(|c| snapshots.iter().map(|id| c.existing(id)).collect())?;
    call.dry_run()?;
    Ok((snapshots, zones))
}

fn member(call: &Call<'_>, x: &mut Xml, f: &FastRestore) {
    let time = |x: &mut Xml, name: &str, at: Millis| {
        if at <= call.now {
            x.text(name, &at.iso());
        }
    };
    x.text("snapshotId", &f.snapshot)
        .text("availabilityZone", &f.zone)
        .text("availabilityZoneId", call.realm.zone_id(&f.zone))
        .text("state", f.state(call.now))
        .text("stateTransitionReason", "Client.UserInitiated - Lifecycle state transition")
        .text("ownerId", &call.realm.account);
    time(x, "enablingTime", f.enabling);
    time(x, "optimizingTime", f.optimizing);
    time(x, "enabledTime", f.enabled);
}

const FIELDS: &[Field<FastRestore>] = &[
    ("availability-zone", |_, f| vec![f.zone.clone()]),
    ("snapshot-id", |_, f| vec![f.snapshot.clone()]),
    ("state", |call, f| vec![f.state(call.now).to_owned()]),
];

pub(crate) fn describe(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let query = Query::parse(call, FIELDS, ("", &[]), (0, 200))?;
    let set = "fastSnapshotRestoreSet";
    let all = &call.realm.fast_restores;
    Ok(query.answer(call, set, all, None, |x, f| member(call, x, f)))
}
