//! CreateVolume, CopyVolumes, which copies a volume's current bytes to a new volume in the same
//! zone, and DeleteVolume.

use super::permission::requested;
use super::render::View;
use super::{Call, EXISTING, Keys, REQUESTED, Row, quota_check};
use crate::faults::Fault;
use crate::state::resources::{
    CreateOutcome, Initialization, ModificationState, Origin, SnapshotState, TokenUse, Volume,
    VolumeState, VolumeType, Wanted, ZoneKind, tags, volume_type,
};
use crate::state::well_formed;
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Xml, refuse, refuse_combination, refuse_value};

/// CopyVolumes has `ec2:ResourceTag` in the reference only as a key of the type volume; AWS's
/// managed policy AmazonEBSCSIDriverPolicyV2 compares it in this action.
const COPIED: Keys = &["aws:RequestTag/", "aws:TagKeys", "ec2:ResourceTag/"];

pub(super) const ACTIONS: &[Row] = &[
    ("CopyVolumes", copy, "SourceVolumeId={volume}&VolumeType=gp3", &[("volume", COPIED)]),
    (
        "CreateVolume",
        create,
        "AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3",
        &[("snapshot", EXISTING), ("volume", REQUESTED)],
    ),
    ("DeleteVolume", delete, "VolumeId={volume}", &[("volume", EXISTING)]),
];

/// The request, checked as far as possible without looking at the state.
struct Request {
    /// The volume without its id, its state and what it gets from its snapshot.
    volume: Volume,
    kind: &'static VolumeType,
    snapshot: Option<String>,
    /// As sent in the request.
    encrypted: Option<bool>,
    kms_key: Option<String>,
    rate: Option<u32>,
    token: Option<String>,
    /// The parameters that have a default, as sent in the request.
    sent: Vec<Option<String>>,
}

/// Answers CreateVolume. The order of the checks is EC2's: parameters, permission, dry run,
/// multi-attach, token, snapshot.
fn create(call: &mut Call<'_>) -> ApiResult<String> {
    let request = parse(call)?;
    permit(call, &request)?;
    call.dry_run()?;
    let (shape, zone) = (&request.volume.shape, &request.volume.zone);
    request.kind.check_multi_attach(shape.multi_attach)?;
    let fingerprint = fingerprint(&request);
    if call.quotas.before_token {
        quota_check::volume(call, shape, zone, None)?;
    }
    let token = request.token.as_deref();
    if let Some(v) = replayed(call, token, &fingerprint)? {
        return Ok(members(call, v));
    }
    if !call.quotas.before_token {
        quota_check::volume(call, shape, zone, None)?;
    }
    let mut source_encryption = (false, None);
    if let Some(id) = &request.snapshot {
        let s = call.realm.snapshot(id)?;
        if !matches!(s.life, SnapshotState::Completed { .. }) {
            refuse!("IncorrectState", "Snapshot is in invalid state - {}", s.status());
        }
        if s.is_archived(call.now) {
            // unverified code and wording.
            refuse!("IncorrectState", "Snapshot is in invalid state - archived");
        }
        if s.encrypted && request.encrypted == Some(false) {
            // The code was recorded; the wording is unverified.
            refuse_combination!(
                "The parameter encrypted cannot be false for a volume from an encrypted snapshot."
            );
        }
        source_encryption = (s.encrypted, s.kms_key.clone());
    }
    let volume = build(call, &request, source_encryption);
    let members = members(call, &volume);
    add_volume(call, volume, token, fingerprint)?;
    Ok(members)
}

/// The maximum length of a token, in characters.
const MAX_TOKEN_LENGTH: usize = 64;

/// How long a token is remembered, in milliseconds.
const RETENTION_MS: u64 = 12 * 3600 * 1000;

/// Returns the volume that an earlier request with this token made, if the request is a repetition.
fn replayed<'a>(
    call: &'a Call<'_>,
    token: Option<&str>,
    fingerprint: &str,
) -> ApiResult<Option<&'a Volume>> {
    let Some(token) = token else { return Ok(None) };
    if token.chars().count() > MAX_TOKEN_LENGTH {
        refuse_value!("Client token must be less than or equal to 64 characters.");
    }
    let used = call.realm.tokens.get(token);
    let used = used.filter(|used| call.now.since(used.at) < RETENTION_MS);
    let Some(used) = used else { return Ok(None) };
    let Ok(volume) = call.realm.volume(&used.volume) else {
        refuse!(
            "IdempotentParameterMismatch",
            "The client token '{token}' is associated with resource '{}' which has already been deleted. Please use a different client token.",
            used.volume
        );
    };
    if used.fingerprint != fingerprint {
        refuse!(
            "IdempotentParameterMismatch",
            "Parameters on this idempotent request are inconsistent with parameters used in previous request(s)."
        );
    }
    Ok(Some(volume))
}

fn add_volume(
    call: &mut Call<'_>,
    volume: Volume,
    token: Option<&str>,
    fingerprint: String,
) -> ApiResult<()> {
    call.on_devices(|d| d.images.create(&volume.id, volume.shape.size, &volume.origin))?;
    if let Some(token) = token {
        let used = TokenUse { volume: volume.id.clone(), fingerprint, at: call.now };
        call.realm.tokens.insert(token.to_owned(), used);
    }
    call.effects.push(volume.id.clone());
    call.realm.put_volume(volume);
    Ok(())
}

fn permit(call: &Call<'_>, request: &Request) -> ApiResult<()> {
    call.permit(|c| {
        let source = request.snapshot.as_ref().map(|id| c.existing(id));
        source.into_iter().chain([c.new_resource("volume", &request.volume.tags)]).collect()
    })?;
    call.permit_tagging("volume", &request.volume.tags)
}

fn members(call: &Call<'_>, v: &Volume) -> String {
    Xml::default().volume(call.realm, v, View::Created).finish()
}

fn parse(call: &Call<'_>) -> ApiResult<Request> {
    let p = call.params;
    let (zone_name, zone_id) = (p.text("AvailabilityZone"), p.text("AvailabilityZoneId"));
    let size = p.positive("Size")?;
    let snapshot = p.text("SnapshotId").map(str::to_owned);
    let kind = p.text("VolumeType").unwrap_or("gp2");
    let wanted = Wanted { iops: p.positive("Iops")?, throughput: p.positive("Throughput")? };
    let multi_attach = p.boolean("MultiAttachEnabled")?.unwrap_or(false);
    let encrypted = p.boolean("Encrypted")?;
    let sent = ["Size", "VolumeType", "Iops", "Throughput", "MultiAttachEnabled"]
        .map(|name| p.text(name).map(str::to_owned))
        .into();
    let kms_key = p.text("KmsKeyId").map(str::to_owned);
    let outpost = p.text("OutpostArn").map(str::to_owned);
    let rate = p.positive("VolumeInitializationRate")?;
    let token = p.text("ClientToken").map(str::to_owned);
    let tags = tags::parse_specifications(p, "volume")?;
    p.finish()?;

    let zone = call.zone(zone_name, zone_id)?;
    let kind = volume_type::find(kind)?;
    if let Some(id) = &snapshot {
        Call::check_snapshot_id(id)?;
    }
    let from = snapshot.as_ref().and_then(|id| call.realm.snapshots().get(id));
    let size = match (size, &snapshot, from) {
        (None, None, _) => return Err(ApiError::missing("size/snapshot")),
        // EC2 silently raises a size below the snapshot's.
        (Some(size), _, Some(s)) => size.max(s.size),
        (None, _, Some(s)) => s.size,
        (Some(size), _, None) => size,
        (None, Some(id), None) => return Err(ApiError::no_snapshot(id)),
    };
    let volume = Volume {
        shape: kind.shape(size, wanted, multi_attach)?,
        origin: snapshot.clone().map_or(Origin::Blank, Origin::Snapshot),
        kms_key: kms_key.as_deref().map(|key| call.key_arn(key)),
        outpost,
        tags,
        root: false,
        ..Volume::plain(String::new(), size, &zone, call.now)
    };
    if rate.is_some() && snapshot.is_none() {
        refuse_combination!(
            "You can't specify VolumeInitializationRate for volumes that are not created from a snapshot."
        );
    }
    let is_edge = call.realm.zone(&volume.zone).is_some_and(|z| z.kind != ZoneKind::Availability);
    if rate.is_some() && (is_edge || volume.outpost.is_some()) {
        // unverified wording.
        refuse_combination!(
            "You can't specify VolumeInitializationRate for volumes on Outposts, in Local Zones and in Wavelength Zones."
        );
    }
    if rate.is_some_and(|r| !(100..=300).contains(&r)) {
        refuse_value!(
            "The value specified for VolumeInitializationRate is not in the allowed range."
        );
    }
    Ok(Request { volume, kind, snapshot, encrypted, kms_key, rate, token, sent })
}

/// Returns what two requests with the same token must agree on. Parameters count as sent: an
/// explicit default differs from an omitted parameter. Tags are sorted and zones are named, so
/// neither order nor form matters.
fn fingerprint(a: &Request) -> String {
    let v = &a.volume;
    format!(
        "create|{}|{:?}|{:?}|{:?}|{:?}|{:?}|{:?}|{:?}",
        v.zone, a.sent, a.snapshot, a.encrypted, a.kms_key, v.outpost, a.rate, v.tags
    )
}

fn build(call: &mut Call<'_>, request: &Request, source: (bool, Option<String>)) -> Volume {
    let item =
        if request.snapshot.is_some() { "volume_create_from_snapshot" } else { "volume_create" };
    let until = call.begin.plus(call.latency.sample(item));
    let mut volume = request.volume.clone();
    // A volume from an encrypted snapshot is encrypted, whatever the request has.
    volume.encrypted = request.encrypted == Some(true) || source.0;
    volume.kms_key = volume.kms_key.or(source.1);
    let key_refused = !call.may_use_key(volume.kms_key.as_deref(), source.0);
    volume.life = creating_state(call, key_refused, until);
    // A rate overrides a fast restore.
    let rate = request.rate;
    volume.initialization_rate = rate;
    let is_fast = |s: &String| {
        rate.is_none() && call.realm.fast_restores.contains(&(s.clone(), volume.zone.clone()))
    };
    volume.initialization = request.snapshot.as_ref().filter(|s| !is_fast(s)).map(|_| {
        let per_gib = match rate {
            Some(rate) => u64::from(1024 * 1000 / rate),
            None => call.latency.sample("initialize_per_gib"),
        };
        Initialization {
            kind: if rate.is_some() { "provisioned-rate" } else { "default" }.to_owned(),
            from: until,
            until: until.plus(per_gib.saturating_mul(u64::from(volume.shape.size))),
        }
    });
    volume.id = call.ids.issue("vol");
    volume
}

/// Returns the volume's state while EC2 creates it, given the faults. If the caller may not use the
/// key, the volume vanishes without an error in the reply.
fn creating_state(call: &Call<'_>, key_refused: bool, until: Millis) -> VolumeState {
    let failed = call.faults.iter().find_map(|f| match f {
        Fault::FailCreate { outcome, after_ms } => Some((*outcome, call.begin.plus(*after_ms))),
        _ => None,
    });
    let usual = if key_refused { CreateOutcome::Vanish } else { CreateOutcome::Available };
    let (outcome, until) = failed.unwrap_or((usual, until));
    VolumeState::Creating { until, outcome }
}

fn copy(call: &mut Call<'_>) -> ApiResult<String> {
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
    // The reference has the requested tags as condition keys of a volume, not saying of which one.
    call.permit(|c| {
        let source = c.existing(source).with(|keys| requested(keys, &tags));
        vec![source, c.new_resource("volume", &tags)]
    })?;
    call.permit_tagging("volume", &tags)?;
    call.dry_run()?;
    kind.check_multi_attach(multi_attach)?;
    let fingerprint = format!("copy|{source}|{shape:?}|{encrypted:?}|{key:?}|{tags:?}");
    if let Some(v) = replayed(call, token, &fingerprint)? {
        return Ok(copied_members(call, v));
    }
    check_source(call, &from)?;
    quota_check::volume(call, &shape, &from.zone, None)?;
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
        life: creating_state(call, key_refused, until),
        initialization: Some(Initialization {
            kind: "volume-copy".to_owned(),
            from: until,
            until: until.plus(per_gib.saturating_mul(u64::from(size))),
        }),
        tags,
        root: false,
        ..Volume::plain(id, size, &from.zone, call.now)
    };
    let members = copied_members(call, &volume);
    add_volume(call, volume, token, fingerprint)?;
    Ok(members)
}

fn copied_members(call: &Call<'_>, v: &Volume) -> String {
    Xml::default().list("volumeSet", [v], |x, v| x.volume(call.realm, v, View::Full)).finish()
}

/// Checks the source's state and the copies in progress. All codes but that of the Region's limit
/// are unverified.
fn check_source(call: &Call<'_>, from: &Volume) -> ApiResult<()> {
    let id = &from.id;
    if from.life != VolumeState::Ready {
        return Err(from.incorrect_state());
    }
    if from.modification.as_ref().is_some_and(|m| m.state == ModificationState::Modifying) {
        refuse!("IncorrectState", "Volume '{id}' is being modified.");
    }
    if matches!(from.origin, Origin::Volume(_)) && from.initialized_percent(call.now) < 100 {
        refuse!("IncorrectState", "Volume '{id}' is a copy that is not initialized yet.");
    }
    let under_way: Vec<&Volume> = quota_check::copies(call.realm, call.now).collect();
    if under_way.iter().any(|v| v.origin == Origin::Volume(id.clone())) {
        refuse!("IncorrectState", "Volume '{id}' is already being copied.");
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

/// Answers DeleteVolume. The order of the checks is EC2's: id given, id well-formed, volume exists,
/// permission, dry run, attachments.
fn delete(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.text("VolumeId");
    p.finish()?;
    let Some(id) = id else {
        refuse!(
            "MissingParameter",
            "The request must include the VolumeId parameter. Add the required parameter and retry the request."
        );
    };
    if !well_formed(id, "vol") {
        refuse_value!("The volume ID '{id}' is malformed");
    }
    let volume = call.realm.volume(id)?;
    call.permit_on(id)?;
    call.dry_run()?;
    if let Some(a) = volume.attachments.first() {
        refuse!("VolumeInUse", "Volume {id} is currently attached to {}", a.instance);
    }
    let until = call.begin.plus(call.latency.sample("volume_delete"));
    call.realm.update_volume(id, |v| v.life = VolumeState::Deleting { until });
    call.effects.push(id.to_owned());
    Ok("<return>true</return>".to_owned())
}
