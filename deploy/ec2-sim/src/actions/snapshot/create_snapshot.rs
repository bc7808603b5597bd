//! CreateSnapshot. The action takes no client token; a repeated call creates a second snapshot.

use crate::actions::render;
use crate::actions::{Call, quota_check};
use crate::faults::kind::Fault;
use crate::state::resources::snapshot::{Life, Snapshot};
use crate::state::resources::tags;
use crate::state::resources::volume::Life as VolumeLife;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::xml::Xml;

pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let volume = p.required("VolumeId", "VolumeId")?;
    p.text("Description");
    let outpost = p.text("OutpostArn");
    let tags = tags::parse_specifications(p, "snapshot")?;
    p.finish()?;
    Call::check_volume_id(volume)?;
    call.permit(|c| vec![c.existing(volume), c.new_resource("snapshot", &tags)])?;
    call.permit_tagging("snapshot", &tags)?;
    call.dry_run()?;
    let v = call.realm.volume(volume)?;
    if v.life != VolumeLife::Ready {
        return Err(v.incorrect_state());
    }
    if v.last_snapshot
        .is_some_and(|t| call.now.since(t) < call.quotas.snapshot_interval_ms.unwrap_or(0))
    {
        return Err(ApiError::client(
            "SnapshotCreationPerVolumeRateExceeded",
            "The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable sleep interval between requests.",
        ));
    }
    quota_check::snapshot(call, v)?;
    let mut until = call.begin.plus(call.latency.sample("snapshot"));
    let mut fails = false;
    for fault in call.faults {
        if let Fault::FailSnapshot { after_ms } = fault {
            until = call.begin.plus(*after_ms);
            fails = true;
        }
    }
    let id = call.ids.issue("snap");
    call.devices.snapshot(volume, &id).map_err(|e| Call::internal(&e))?;
    let snapshot = Snapshot {
        id: id.clone(),
        volume: volume.to_owned(),
        size: v.shape.size,
        started: call.now,
        life: Life::Pending { until, fails },
        encrypted: v.encrypted,
        kms_key: v.kms_key.clone(),
        outpost: outpost.map(str::to_owned),
        lock: None,
        tags,
    };
    let mut x = Xml::default();
    render::snapshot(&mut x, call.realm, &snapshot, call.now);
    let now = call.now;
    call.realm.put_snapshot(snapshot);
    call.realm.update_volume(volume, |v| v.last_snapshot = Some(now));
    call.effects.push(id);
    Ok(x.finish())
}
