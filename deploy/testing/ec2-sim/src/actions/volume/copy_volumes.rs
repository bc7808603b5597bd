//! CopyVolumes: copies a volume's current bytes to a new volume in the same zone.

use super::create_volume::{add_volume, creating_state, replayed};
use crate::actions::{ActionRow, Call, quota_check, render};
use crate::devices::Source;
use crate::faults::Fault;
use crate::state::resources::{
    Initialization, ModificationState, Origin, Volume, VolumeState, Wanted, tags, volume_type,
};
use crate::state::usage;
use crate::wire::{ApiError, ApiResult, Xml, refuse, refuse_value};

pub(crate) const ROWS: &[ActionRow] =
    &[("CopyVolumes", answer, "SourceVolumeId={volume}&VolumeType=gp3")];

fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let source = p.required("SourceVolumeId", "SourceVolumeId")?;
    let (size, kind) = (p.positive("Size")?, p.text("VolumeType").unwrap_or("gp2"));
    let wanted = Wanted { iops: p.positive("Iops")?, throughput: p.positive("Throughput")? };
    let multi_attach = p.boolean("MultiAttachEnabled")?.unwrap_or(false);
    let (encrypted, key) = (p.boolean("Encrypted")?, p.text("KmsKeyId"));
    let token = p.text("ClientToken");
    let tags = tags::parse_specifications(p, "volume")?;
    p.finish()?;
    Call::check_volume_id(source)?;
    let kind = volume_type::find(kind)?;
    let from = call.realm.volume(source)?.clone();
    let size = size.unwrap_or(from.shape.size);
    if size < from.shape.size {
        // unverified wording.
        refuse_value!("The size of the copy cannot be smaller than the size of the source volume");
    }
    let shape = kind.shape(size, wanted, multi_attach)?;
    call.permit(|c| vec![c.existing(source), c.new_resource("volume", &tags)])?;
    call.permit_tagging("volume", &tags)?;
    call.dry_run()?;
    kind.check_multi_attach(multi_attach)?;
    let fingerprint = format!("copy|{source}|{shape:?}|{encrypted:?}|{key:?}|{tags:?}");
    if let Some(v) = replayed(call, token, &fingerprint)? {
        return Ok(members(call, v));
    }
    check_source(call, &from)?;
    quota_check::volume(call, &shape, &from.zone)?;
    let until = call.begin.plus(call.latency.sample("volume_copy"));
    let keeps_source_key = call.faults.iter().any(|f| matches!(f, Fault::KeepSourceKey {}));
    let (encrypted, kms_key) = match (encrypted == Some(true) && !keeps_source_key, key) {
        // Whether EC2 uses another key for a source that is already encrypted is unverified.
        (true, Some(key)) => (true, Some(call.key_arn(key))),
        (asked, _) => (asked || from.encrypted, from.kms_key),
    };
    let key_refused = !call.may_use_key(kms_key.as_deref(), from.encrypted);
    let per_gib = call.latency.sample("initialize_per_gib");
    let id = call.ids.issue("vol");
    let volume = Volume {
        shape,
        origin: Origin::Volume(source.to_owned()),
        encrypted,
        kms_key,
        life: creating_state(call.faults, key_refused, call.begin, until),
        initialization: Some(Initialization {
            kind: "volume-copy".to_owned(),
            from: until,
            until: until.plus(per_gib.saturating_mul(u64::from(size))),
        }),
        tags,
        root: false,
        ..Volume::plain(id, size, &from.zone, call.now)
    };
    let members = members(call, &volume);
    add_volume(call, volume, Source::Volume(source), token, fingerprint)?;
    Ok(members)
}

fn members(call: &Call<'_>, v: &Volume) -> String {
    let mut x = Xml::default();
    x.list("volumeSet", [v], |x, v| {
        render::volume(x, call.realm, v, render::View::Full);
    });
    x.finish()
}

/// Checks the source's state and the copies in progress. All codes but that of the Region's limit
/// are unverified.
fn check_source(call: &Call<'_>, from: &Volume) -> ApiResult<()> {
    let state = |what: String| Err(ApiError::client("IncorrectState", what));
    if from.life != VolumeState::Ready {
        return Err(from.incorrect_state());
    }
    if from.modification.as_ref().is_some_and(|m| m.state == ModificationState::Modifying) {
        return state(format!("Volume '{}' is being modified.", from.id));
    }
    if matches!(from.origin, Origin::Volume(_)) && from.initialized_percent(call.now) < 100 {
        return state(format!("Volume '{}' is a copy that is not initialized yet.", from.id));
    }
    let under_way: Vec<&Volume> = usage::copies(call.realm, call.now).collect();
    if under_way.iter().any(|v| v.origin == Origin::Volume(from.id.clone())) {
        return state(format!("Volume '{}' is already being copied.", from.id));
    }
    let most = call.quotas.copies;
    if under_way.len() >= most {
        refuse!(
            "CopyVolumesLimitExceeded",
            "The maximum of {most} volume copies in progress has been reached."
        );
    }
    Ok(())
}
