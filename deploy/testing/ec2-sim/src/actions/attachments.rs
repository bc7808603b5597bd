//! AttachVolume and DetachVolume.

use super::{Call, EXISTING, Row};
use crate::faults::Fault;
use crate::state::resources::{
    Attachment, Instance, InstanceState, MAX_MULTI_ATTACH, Phase, ROOT_DEVICE, Volume, VolumeState,
    attachment_limit, device_suffix, find_type, is_device_name,
};
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Xml, refuse, refuse_value};

pub(super) const ACTIONS: &[Row] = &[
    (
        "AttachVolume",
        attach,
        "VolumeId={volume}&InstanceId={instance}&Device=/dev/xvdba",
        &[("instance", EXISTING), ("volume", EXISTING)],
    ),
    (
        "DetachVolume",
        detach,
        "VolumeId={volume}&InstanceId={instance}",
        &[("instance", EXISTING), ("volume", EXISTING)],
    ),
];

/// Answers AttachVolume. The order of the checks is unverified.
fn attach(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let volume = p.required("VolumeId", "VolumeId")?;
    let instance = p.required("InstanceId", "InstanceId")?;
    let device = p.required("Device", "device")?;
    let card = p.number("EbsCardIndex")?.unwrap_or(0);
    p.finish()?;
    Call::check_volume_id(volume)?;
    Call::check_instance_id(instance)?;
    call.permit(|c| vec![c.existing(volume), c.existing(instance)])?;
    call.dry_run()?;
    apply_device_faults(call, instance, device);
    let attachment = {
        let v = call.realm.volume(volume)?;
        let i = call.realm.instance(instance)?;
        check_instance(v, i)?;
        check_volume(v, instance)?;
        check_device(call, i, device)?;
        check_limit(call, i)?;
        let card = check_card(i, card)?;
        Attachment { card, ..attachment(call, instance, device) }
    };
    let members = Xml::default().attachment(volume, &attachment).finish();
    call.realm.update_volume(volume, |v| v.attachments.push(attachment));
    call.effects.push(volume.to_owned());
    Ok(members)
}

/// Applies the faults that make the device name taken: by something that EC2 does not list, or by a
/// concurrent attachment.
fn apply_device_faults(call: &mut Call<'_>, instance: &str, device: &str) {
    for fault in call.faults {
        match fault {
            Fault::DeviceTaken {} => {
                call.realm.update_instance(instance, |i| i.hidden_devices.push(device.to_owned()));
            }
            // Nobody can win the race for a name that is already taken; the request may have
            // arrived twice.
            Fault::DeviceRaced {} if !is_name_listed(call, instance, device) => {
                let Some(i) = call.realm.instances().get(instance) else { continue };
                let mut v = Volume::plain(call.ids.issue("vol"), 1, &i.zone, call.now);
                v.attachments.push(Attachment::new(instance, device, call.now, Some(call.begin)));
                call.realm.put_volume(v);
            }
            _ => {}
        }
    }
}

fn attachment(call: &mut Call<'_>, instance: &str, device: &str) -> Attachment {
    let mut until = Some(call.begin.plus(call.latency.sample("attach")));
    let mut mapped = None;
    for fault in call.faults {
        match fault {
            Fault::StuckAttach { for_ms } => until = for_ms.map(|ms| call.begin.plus(ms)),
            Fault::SkewAttach { ms } => {
                mapped = until;
                until = until.map(|u| u.plus(*ms));
            }
            _ => {}
        }
    }
    let mut a = Attachment::new(instance, device, call.now, until);
    a.phase = Phase::Attaching { until, mapped };
    a
}

fn check_instance(v: &Volume, i: &Instance) -> ApiResult<()> {
    let (volume, instance) = (&v.id, &i.id);
    if i.zone != v.zone {
        refuse!(
            "InvalidVolume.ZoneMismatch",
            "The volume '{volume}' is not in the same availability zone as instance '{instance}'"
        );
    }
    if !matches!(i.life, InstanceState::Running | InstanceState::Stopped) {
        refuse!("IncorrectState", "Instance '{instance}' is not 'running'.");
    }
    Ok(())
}

fn check_volume(v: &Volume, instance: &str) -> ApiResult<()> {
    let taken = if v.shape.multi_attach {
        v.attachment(instance).is_some()
    } else {
        !v.attachments.is_empty()
    };
    if taken {
        refuse!("VolumeInUse", "{} is already attached to an instance", v.id);
    }
    if v.life != VolumeState::Ready {
        return Err(v.incorrect_state());
    }
    if v.attachments.len() >= MAX_MULTI_ATTACH {
        // unverified code.
        refuse!(
            "AttachmentLimitExceeded",
            "You may attach a Multi-Attach enabled volume to up to {MAX_MULTI_ATTACH} instances."
        );
    }
    Ok(())
}

fn check_device(call: &Call<'_>, i: &Instance, device: &str) -> ApiResult<()> {
    if !is_device_name(device) {
        refuse_value!(
            "Value ({device}) for parameter device is invalid. {device} is not a valid EBS device name."
        );
    }
    let suffix = device_suffix(device);
    let mut hidden = i.hidden_devices.iter().map(|d| device_suffix(d));
    if is_name_listed(call, &i.id, device) || hidden.any(|d| d == suffix) {
        refuse_value!(
            "Invalid value '{device}' for unixDevice. Attachment point {device} is already in use"
        );
    }
    Ok(())
}

fn is_name_listed(call: &Call<'_>, instance: &str, device: &str) -> bool {
    let suffix = device_suffix(device);
    let mut attachments = call.realm.volumes_of(instance).filter_map(|v| v.attachment(instance));
    attachments.any(|a| device_suffix(&a.device) == suffix)
}

fn check_limit(call: &Call<'_>, i: &Instance) -> ApiResult<()> {
    let limit = attachment_limit(&i.instance_type);
    let have = call.realm.volumes_of(&i.id).count();
    if have >= usize::try_from(limit).unwrap_or(usize::MAX) {
        refuse!(
            "AttachmentLimitExceeded",
            "You may attach up to {limit} devices for this instance type. Please use a larger instance size to attach more volumes. For a detailed list of limits please see the documentation."
        );
    }
    Ok(())
}

/// Returns the card's number, if the instance type has that many cards. Code and wording
/// unverified.
fn check_card(i: &Instance, card: i64) -> ApiResult<u32> {
    let cards = find_type(&i.instance_type).map_or(1, |t| t.cards);
    match u32::try_from(card) {
        Ok(card) if card < cards => Ok(card),
        _ => refuse_value!(
            "Value ({card}) for parameter ebsCardIndex is invalid. The instance has {cards} EBS card(s)."
        ),
    }
}

fn detach(call: &mut Call<'_>) -> ApiResult<String> {
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
            x.attachment(volume, &shown);
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

fn attached_instance(call: &Call<'_>, v: &Volume, instance: Option<&str>) -> ApiResult<String> {
    if let Some(i) = instance
        && !call.realm.instances().contains_key(i)
    {
        return Err(ApiError::no_instance(i));
    }
    // The wordings of the next two refusals are unverified.
    let id = &v.id;
    let attachment = match (instance, v.attachments.as_slice()) {
        (_, []) => return Err(v.incorrect_state()),
        (Some(i), _) => v.attachment(i).ok_or_else(|| {
            let message = format!("The volume '{id}' is not attached to instance '{i}'");
            ApiError::client("InvalidAttachment.NotFound", message)
        })?,
        (None, [only]) => only,
        (None, _) => refuse!(
            "MissingParameter",
            "The request must contain the parameter InstanceId: volume '{id}' is attached to several instances"
        ),
    };
    let boots_from_it = call.realm.instances().get(&attachment.instance).is_some_and(|i| {
        attachment.device == ROOT_DEVICE && !matches!(i.life, InstanceState::Stopped)
    });
    if boots_from_it {
        let from = &attachment.instance;
        refuse!(
            "OperationNotPermitted",
            "Unable to detach root volume '{id}' from instance '{from}'"
        );
    }
    Ok(attachment.instance.clone())
}
