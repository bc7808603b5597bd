//! EnableFastSnapshotRestores and DescribeFastSnapshotRestores. The first answers with status 200
//! and lists failures in the body.

use crate::actions::{ActionRow, Call};
use crate::faults::Fault;
use crate::wire::{ApiError, ApiResult, Filters, Xml};

pub(crate) const ROWS: &[ActionRow] = &[
    ("DescribeFastSnapshotRestores", describe, ""),
    (
        "EnableFastSnapshotRestores",
        enable,
        "SourceSnapshotId.1={snapshot}&AvailabilityZone.1=us-east-1a",
    ),
];

fn enable(call: &mut Call<'_>) -> ApiResult<String> {
    let (snapshots, zones) = parse(call)?;
    let (mut enabled, mut refused) = (Vec::new(), Vec::new());
    for snapshot in snapshots {
        for zone in &zones {
            match check(call, snapshot, zone) {
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
        x.text("snapshotId", snapshot).list(set, [()], |x, ()| {
            x.text("availabilityZone", zone).nest("error", |x| {
                x.text("code", &error.code).text("message", &error.message);
            });
        });
    });
    Ok(x.finish())
}

/// Checks one snapshot in one zone. The codes of the errors are unverified.
fn check(call: &Call<'_>, snapshot: &str, zone: &str) -> ApiResult<()> {
    for fault in call.faults {
        if let Fault::Unsuccessful { code, message } = fault {
            return Err(ApiError::client(code, message.as_str()));
        }
    }
    if call.realm.snapshot(snapshot)?.is_archived(call.now) {
        return Err(ApiError::client("IncorrectState", "The snapshot is archived."));
    }
    call.zone(Some(zone), None).map(drop)
}

fn parse<'a>(call: &Call<'a>) -> ApiResult<(Vec<&'a str>, Vec<&'a str>)> {
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

fn member(x: &mut Xml, (snapshot, zone): &(String, String)) {
    x.text("snapshotId", snapshot).text("availabilityZone", zone).text("state", "enabled");
}

fn describe(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let filters = Filters::parse(call.params, &["snapshot-id"])?;
    call.params.finish()?;
    let all = call.realm.fast_restores.iter();
    let shown = all.filter(|(snapshot, _)| filters.accept(|_| vec![snapshot.clone()]));
    let mut x = Xml::default();
    x.list("fastSnapshotRestoreSet", shown, member);
    Ok(x.finish())
}
