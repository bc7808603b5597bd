//! CreateSnapshot. The action takes no client token; a repeated call creates a second snapshot.

use crate::actions::{ActionRow, Call, quota_check, render};
use crate::faults::Fault;
use crate::state::resources::{Snapshot, SnapshotState, VolumeState, tags};
use crate::wire::{ApiResult, Xml, refuse};

pub(crate) const ROWS: &[ActionRow] = &[("CreateSnapshot", answer, "VolumeId={volume}")];

fn answer(call: &mut Call<'_>) -> ApiResult<String> {
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
    if v.life != VolumeState::Ready {
        return Err(v.incorrect_state());
    }
    if v.last_snapshot
        .is_some_and(|t| call.now.since(t) < call.quotas.snapshot_interval_ms.unwrap_or(0))
    {
        refuse!(
            "SnapshotCreationPerVolumeRateExceeded",
            "The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable sleep interval between requests."
        );
    }
    quota_check::snapshot(call, v)?;
    let usual = call.latency.sample("snapshot");
    let failed = call.fault(|f| match f {
        Fault::FailSnapshot { after_ms } => Some(*after_ms),
        _ => None,
    });
    let (fails, until) = (failed.is_some(), call.begin.plus(failed.unwrap_or(usual)));
    let id = call.ids.issue("snap");
    call.devices.snapshot(volume, &id).map_err(|e| Call::internal(&e))?;
    let snapshot = Snapshot {
        id: id.clone(),
        volume: volume.to_owned(),
        size: v.shape.size,
        started: call.now,
        life: SnapshotState::Pending { until, fails },
        encrypted: v.encrypted,
        kms_key: v.kms_key.clone(),
        outpost: outpost.map(str::to_owned),
        lock: None,
        archival: None,
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
