//! DetachVolume.

use crate::actions::{ActionRow, Call, render};
use crate::faults::Fault;
use crate::state::resources::{InstanceState, Phase, ROOT_DEVICE, Volume};
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Xml, refuse};

pub(crate) const ROWS: &[ActionRow] =
    &[("DetachVolume", answer, "VolumeId={volume}&InstanceId={instance}")];

fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let volume = p.required("VolumeId", "VolumeId")?;
    let instance = p.text("InstanceId");
    let force = p.boolean("Force")?.unwrap_or(false);
    p.finish()?;
    Call::check_volume_id(volume)?;
    if let Some(i) = instance {
        Call::check_instance_id(i)?;
    }
    call.permit(|c| {
        let from = instance.or_else(|| {
            let v = c.realm.volumes().get(volume)?;
            Some(v.attachments.first()?.instance.as_str())
        });
        std::iter::once(volume).chain(from).map(|id| c.existing(id)).collect()
    })?;
    call.dry_run()?;
    let v = call.realm.volumes().get(volume).ok_or_else(|| ApiError::no_volume(volume))?;
    let from = attached_instance(call, v, instance)?;
    let (until, busy) = plan_detach(call);
    let mut x = Xml::default();
    call.realm.update_volume(volume, |v| {
        if let Some(a) = v.attachment_mut(&from) {
            if a.detach(until, force) && busy {
                a.phase = Phase::Busy { again: until };
            }
            // The reply always shows `detaching`.
            let mut shown = a.clone();
            shown.phase = Phase::Detaching { until, force };
            render::attachment(&mut x, volume, &shown);
        }
    });
    call.effects.push(volume.to_owned());
    Ok(x.finish())
}

/// Returns when the simulator removes the device, and whether it shows `busy` until then.
fn plan_detach(call: &mut Call<'_>) -> (Option<Millis>, bool) {
    let stuck = call.fault(|f| match f {
        Fault::StuckDetach { for_ms, busy } => Some((for_ms.map(|ms| call.begin.plus(ms)), *busy)),
        _ => None,
    });
    if let Some(stuck) = stuck {
        return stuck;
    }
    (Some(call.begin.plus(call.latency.sample("detach"))), false)
}

/// Returns the instance from which to detach the volume.
fn attached_instance(call: &Call<'_>, v: &Volume, instance: Option<&str>) -> ApiResult<String> {
    if let Some(i) = instance
        && !call.realm.instances().contains_key(i)
    {
        return Err(ApiError::no_instance(i));
    }
    if v.attachments.is_empty() {
        return Err(v.incorrect_state());
    }
    let attachment = match instance {
        Some(i) => v.attachment(i).ok_or_else(|| {
            // unverified wording.
            ApiError::client(
                "InvalidAttachment.NotFound",
                format!("The volume '{}' is not attached to instance '{i}'", v.id),
            )
        })?,
        None if v.attachments.len() > 1 => {
            // unverified wording.
            refuse!(
                "MissingParameter",
                "The request must contain the parameter InstanceId: volume '{}' is attached to several instances",
                v.id
            );
        }
        None => &v.attachments[0],
    };
    let boots_from_it = call.realm.instances().get(&attachment.instance).is_some_and(|i| {
        attachment.device == ROOT_DEVICE && !matches!(i.life, InstanceState::Stopped)
    });
    if boots_from_it {
        refuse!(
            "OperationNotPermitted",
            "Unable to detach root volume '{}' from instance '{}'",
            v.id,
            attachment.instance
        );
    }
    Ok(attachment.instance.clone())
}
