//! EnableFastSnapshotRestores and DescribeFastSnapshotRestores. The first answers with status 200
//! and lists failures in the body.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::faults::kind::Fault;
use crate::state::resources::fast_restore::FastRestore;
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
    x.list("successful", &enabled, member);
    x.list("unsuccessful", &refused, |x, (snapshot, zone, error)| {
        let set = "fastSnapshotRestoreStateErrorSet";
        x.text("snapshotId", snapshot).list(set, [()], |x, ()| {
            x.text("availabilityZone", zone).nest("error", |x| {
                x.text("code", &error.code).text("message", &error.message);
            });
        });
    });
    Ok(x.finish())
}

/// Enables one snapshot in one zone. The codes of the errors are unverified.
fn enable_one(call: &Call<'_>, snapshot: &str, zone: &str) -> ApiResult<FastRestore> {
    for fault in call.faults {
        if let Fault::Unsuccessful { code, message } = fault {
            return Err(ApiError::client(code, message.as_str()));
        }
    }
    call.realm.snapshot(snapshot)?;
    call.zone(Some(zone), None)?;
    Ok(FastRestore { snapshot: snapshot.to_owned(), zone: zone.to_owned() })
}

fn parse<'a>(call: &Call<'a>) -> ApiResult<(Vec<&'a str>, Vec<&'a str>)> {
    let p = call.params;
    let (zones, snapshots) = (p.list("AvailabilityZone"), p.list("SourceSnapshotId"));
    p.finish()?;
    for id in &snapshots {
        Call::check_snapshot_id(id)?;
    }
    for (name, values) in [("SourceSnapshotId", &snapshots), ("AvailabilityZone", &zones)] {
        if values.is_empty() {
            return Err(ApiError::missing(name));
        }
    }
    call.permit(|c| snapshots.iter().map(|id| c.existing(id)).collect())?;
    call.dry_run()?;
    Ok((snapshots, zones))
}

fn member(x: &mut Xml, f: &FastRestore) {
    x.text("snapshotId", &f.snapshot).text("availabilityZone", &f.zone).text("state", "enabled");
}

const FIELDS: &[Field<FastRestore>] = &[("snapshot-id", |_, f| vec![f.snapshot.clone()])];

pub(crate) fn describe(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let query = Query::parse(call, FIELDS, ("", &[]), (0, 200))?;
    let set = "fastSnapshotRestoreSet";
    Ok(query.answer(call, set, &call.realm.fast_restores, None, member))
}
