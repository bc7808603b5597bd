//! EnableFastSnapshotRestores and DescribeFastSnapshotRestores. The first answers with status 200
//! and lists failures in the body.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::faults::kind::Fault;
use crate::state::resources::fast_restore::FastRestore;
use crate::time::Millis;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::xml::Xml;

/// The result for one snapshot in one zone.
struct Outcome {
    snapshot: String,
    zone: String,
    result: Result<FastRestore, (String, String)>,
}

pub(crate) fn enable(call: &mut Call<'_>) -> ApiResult<String> {
    let (snapshots, zones) = parse(call)?;
    let mut outcomes = Vec::new();
    for (snapshot, zone) in pairs(&snapshots, &zones) {
        let result = enable_one(call, &snapshot, &zone);
        if let Ok(f) = &result {
            let key = format!("{snapshot}/{zone}");
            call.effects.push(key.clone());
            call.realm.fast_restores.insert(key, f.clone());
        }
        outcomes.push(Outcome {
            snapshot,
            zone,
            result,
        });
    }
    Ok(answer(call, &outcomes))
}

fn enable_one(
    call: &mut Call<'_>,
    snapshot: &str,
    zone: &str,
) -> Result<FastRestore, (String, String)> {
    for fault in call.faults {
        if let Fault::Unsuccessful { code, message } = fault {
            return Err((code.clone(), message.clone()));
        }
    }
    // The items' error codes are unverified.
    let s = call.realm.snapshot(snapshot);
    let s = s.map_err(|e| (e.code, e.message))?;
    if call.realm.zone(zone).is_none() {
        return Err((
            "InvalidZone.NotFound".to_owned(),
            format!("The zone '{zone}' does not exist."),
        ));
    }
    let size = s.size;
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

fn parse(call: &Call<'_>) -> ApiResult<(Vec<String>, Vec<String>)> {
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
    Ok((snapshots.iter().map(|s| (*s).to_owned()).collect(), zones))
}

fn pairs(snapshots: &[String], zones: &[String]) -> Vec<(String, String)> {
    snapshots
        .iter()
        .flat_map(|s| zones.iter().map(|z| (s.clone(), z.clone())))
        .collect()
}

fn answer(call: &Call<'_>, outcomes: &[Outcome]) -> String {
    let mut x = Xml::new();
    x.list(
        "successful",
        outcomes.iter().filter_map(|o| o.result.as_ref().ok()),
        |x, f| member(call, x, f),
    );
    x.list(
        "unsuccessful",
        outcomes
            .iter()
            .filter_map(|o| Some((o, o.result.as_ref().err()?))),
        |x, (o, (code, message))| {
            x.text("snapshotId", &o.snapshot).list(
                "fastSnapshotRestoreStateErrorSet",
                [()],
                |x, ()| {
                    x.text("availabilityZone", &o.zone)
                        .text("availabilityZoneId", call.realm.zone_id(&o.zone))
                        .nest("error", |x| {
                            x.text("code", code).text("message", message);
                        });
                },
            );
        },
    );
    x.finish()
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
        .text(
            "stateTransitionReason",
            "Client.UserInitiated - Lifecycle state transition",
        )
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
