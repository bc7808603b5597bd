//! ModifyVolume.

use super::{Call, EXISTING, Row, quota_check};
use crate::faults::Fault;
use crate::state::resources::{
    Modification, ModificationState, Shape, Volume, VolumeState, VolumeType, Wanted, name_of,
    volume_type,
};
use crate::state::well_formed;
use crate::time::DAY_MS;
use crate::wire::{ApiResult, Xml, refuse, refuse_value};

pub(super) const ACTIONS: &[Row] =
    &[("ModifyVolume", answer, "VolumeId={volume}", &[("volume", EXISTING)])];

struct Change<'a> {
    size: Option<u32>,
    kind: Option<&'a str>,
    wanted: Wanted,
}

/// Answers ModifyVolume. A dry run is answered before any other check.
fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    call.permit(|c| {
        // Without an id, IAM judges the action on `*`.
        vec![c.existing(p.text("VolumeId").unwrap_or("*"))]
    })?;
    call.dry_run()?;
    let id = p.required("VolumeId", "VolumeId")?;
    let change = Change {
        size: p.positive("Size")?,
        kind: p.text("VolumeType"),
        wanted: Wanted { iops: p.positive("Iops")?, throughput: p.positive("Throughput")? },
    };
    p.finish()?;
    check_id(id)?;
    let Wanted { iops, throughput } = change.wanted;
    if change.size.or(iops).or(throughput).is_none() && change.kind.is_none() {
        refuse_value!(
            "Invalid input: Must specify at least one of size, type, iops, throughput or multi-attach."
        );
    }
    let v = call.realm.volume(id)?;
    check_state(v)?;
    let target = target(v, &change)?;
    check_rate(call, v)?;
    quota_check::reshape(call, v, &target)?;
    if !v.root && target.size > v.shape.size {
        call.on_devices(|d| d.images.check_size(target.size))?;
    }
    let modification = begin(call, id, target);
    let now = call.now;
    let mut x = Xml::default();
    x.nest("volumeModification", |x| x.modification(id, &modification, now));
    call.realm.update_volume(id, |v| {
        v.modified.retain(|t| now.since(*t) < DAY_MS);
        v.modified.push(now);
        v.modification = Some(modification);
    });
    call.effects.push(id.to_owned());
    Ok(x.finish())
}

pub(super) fn check_id(id: &str) -> ApiResult<()> {
    if !well_formed(id, "vol") {
        refuse!("InvalidVolumeID.Malformed", "Value ( {id} ) for parameter VOLUME is invalid. ");
    }
    Ok(())
}

fn check_state(v: &Volume) -> ApiResult<()> {
    if v.life != VolumeState::Ready {
        // unverified wording.
        return Err(v.incorrect_state());
    }
    if let Some(m) = &v.modification
        && matches!(m.state, ModificationState::Modifying | ModificationState::Optimizing)
    {
        let (id, state) = (&v.id, name_of(m.state).to_uppercase());
        refuse!(
            "IncorrectModificationState",
            "Volume {id} cannot be modified in modification state {state}"
        );
    }
    Ok(())
}

/// Limits the modifications within any 24 hours; a call that changes nothing counts too.
fn check_rate(call: &Call<'_>, v: &Volume) -> ApiResult<()> {
    let recent: Vec<_> = v.modified.iter().filter(|t| call.now.since(**t) < DAY_MS).collect();
    if recent.len() < call.quotas.modifications_per_day {
        return Ok(());
    }
    let last = recent.get(recent.len() - call.quotas.modifications_per_day);
    let free_again = last.map_or(call.now, |t| t.plus(DAY_MS)).iso();
    refuse!(
        "VolumeModificationRateExceeded",
        "You've reached the maximum modification rate per volume limit. Wait until {free_again} before you can issue the next modification request for this volume."
    );
}

fn target(v: &Volume, c: &Change<'_>) -> ApiResult<Shape> {
    let now = &v.shape;
    let kind = volume_type::find(c.kind.unwrap_or(&now.volume_type))?;
    let size = c.size.unwrap_or(now.size);
    if size < now.size {
        refuse_value!("New size cannot be smaller than existing size");
    }
    if now.volume_type == "io1" && now.multi_attach {
        refuse!(
            "UnsupportedOperation",
            "io1 volumes with Multi-Attach enabled do not support modify-volume actions"
        );
    }
    kind.check_multi_attach(now.multi_attach)?;
    let mut shape = kind.shape(size, filled(now, kind, c.wanted), now.multi_attach)?;
    if kind.name == now.volume_type && c.wanted.iops.is_none() && kind.iops.is_some() {
        shape.iops = now.iops;
    }
    Ok(shape)
}

/// Fills in omitted values: the same type keeps its values; a change from gp2 to gp3 gives at least
/// the previous performance.
fn filled(now: &Shape, kind: &VolumeType, wanted: Wanted) -> Wanted {
    let same = kind.name == now.volume_type;
    let from_gp2 = now.volume_type == "gp2" && kind.name == "gp3";
    let iops = wanted.iops.or_else(|| match () {
        () if kind.iops.is_none() => None,
        () if same => now.iops,
        () if from_gp2 => Some(now.iops.unwrap_or(0).max(3_000)),
        () => Some(3_000),
    });
    let throughput = wanted.throughput.or_else(|| match () {
        () if kind.throughput.is_none() => None,
        () if same => now.throughput,
        () if from_gp2 => Some(volume_type::gp2_throughput(now.size).clamp(125, 250)),
        () => Some(125),
    });
    Wanted { iops, throughput }
}

fn begin(call: &mut Call<'_>, id: &str, target: Shape) -> Modification {
    let original = match call.realm.volumes().get(id) {
        Some(v) => v.shape.clone(),
        None => target.clone(),
    };
    let usual = call.latency.sample("modify");
    let failed = call.fault(|f| match f {
        Fault::FailModify { after_ms } => Some(*after_ms),
        _ => None,
    });
    let (fails, optimizing_at) = (failed.is_some(), call.begin.plus(failed.unwrap_or(usual)));
    let rest = call.latency.sample("modify_complete")
        + call.latency.per_tib("modify_complete_per_tib", target.size);
    Modification {
        original,
        target,
        started: call.now,
        optimizing_at,
        completed_at: optimizing_at.plus(rest),
        fails,
        state: ModificationState::Modifying,
    }
}
