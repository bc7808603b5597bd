//! CreateSnapshot and CreateSnapshots, which take no client token, so that a repeated call creates
//! further snapshots; DeleteSnapshot and DescribeSnapshots.

use super::describe_query::Describe;
use super::{Call, EXISTING, REQUESTED, Row, quota_check};
use crate::faults::Fault;
use crate::state::Realm;
use crate::state::resources::{
    ROOT_DEVICE, Snapshot, SnapshotState, Tags, Volume, VolumeState, tags,
};
use crate::wire::{ApiError, ApiResult, Xml, refuse, refuse_combination, refuse_value};
use std::collections::BTreeSet;

pub(super) const ACTIONS: &[Row] = &[
    (
        "CreateSnapshot",
        create,
        "VolumeId={volume}",
        &[("snapshot", REQUESTED), ("volume", EXISTING)],
    ),
    (
        "CreateSnapshots",
        create_set,
        "InstanceSpecification.InstanceId={instance}&InstanceSpecification.ExcludeBootVolume=false",
        &[("instance", EXISTING), ("snapshot", REQUESTED), ("volume", EXISTING)],
    ),
    ("DeleteSnapshot", delete, "SnapshotId={snapshot}", &[("snapshot", EXISTING)]),
    ("DescribeSnapshots", describe, "", &[]),
];

/// What one request gives to each snapshot that it makes.
struct Request<'a> {
    description: &'a str,
    outpost: Option<&'a str>,
}

fn create(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let volume = p.required("VolumeId", "VolumeId")?;
    let request = Request {
        description: p.text("Description").unwrap_or_default(),
        outpost: p.text("OutpostArn"),
    };
    let tags = tags::parse_specifications(p, "snapshot")?;
    p.finish()?;
    Call::check_volume_id(volume)?;
    call.permit(|c| vec![c.existing(volume), c.new_resource("snapshot", &tags)])?;
    call.permit_tagging("snapshot", &tags)?;
    call.dry_run()?;
    check_source(call, call.realm.volume(volume)?, 0)?;
    let made = make(call, &request, vec![(volume.to_owned(), tags)])?;
    let mut x = Xml::default();
    for s in &made {
        x.snapshot(call.realm, s, call.now);
    }
    Ok(x.finish())
}

/// The maximum number of excluded volumes in a request.
const MAX_EXCLUDED: usize = 40;

/// Answers CreateSnapshots, which takes each volume of an instance, all at one moment. The codes
/// and wordings of its refusals are unverified, and so is their order.
fn create_set(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let instance = p.required("InstanceSpecification.InstanceId", "InstanceId")?;
    let without_root = p.boolean("InstanceSpecification.ExcludeBootVolume")?.unwrap_or(false);
    let excluded = p.list("InstanceSpecification.ExcludeDataVolumeId");
    let request = Request {
        description: p.text("Description").unwrap_or_default(),
        outpost: p.text("OutpostArn"),
    };
    let copies_tags = match p.text("CopyTagsFromSource") {
        None => false,
        Some("volume") => true,
        Some(other) => {
            refuse_value!("Value ({other}) for parameter copyTagsFromSource is invalid.")
        }
    };
    let requested = tags::parse_specifications(p, "snapshot")?;
    p.finish()?;
    Call::check_instance_id(instance)?;
    excluded.iter().try_for_each(|id| Call::check_volume_id(id))?;
    if excluded.len() > MAX_EXCLUDED {
        refuse_value!("You can exclude at most {MAX_EXCLUDED} data volumes per request.");
    }
    let mut members = Vec::new();
    for volume in volumes(call, instance, without_root, &excluded)? {
        // A requested tag replaces the volume's tag of the same key: unverified.
        let mut tags =
            if copies_tags { call.realm.volume(&volume)?.tags.clone() } else { Tags::new() };
        tags.extend(requested.clone());
        tags::check(&tags)?;
        members.push((volume, tags));
    }
    // That excluded volumes need no permission is unverified.
    call.permit(|c| {
        let volumes = members.iter().map(|(volume, _)| c.existing(volume));
        let fixed = [c.existing(instance), c.new_resource("snapshot", &requested)];
        fixed.into_iter().chain(volumes).collect()
    })?;
    // That copied tags need the permission to tag is unverified.
    members.iter().try_for_each(|(_, tags)| call.permit_tagging("snapshot", tags))?;
    call.dry_run()?;
    for (before, (volume, _)) in members.iter().enumerate() {
        check_source(call, call.realm.volume(volume)?, before)?;
    }
    let made = make(call, &request, members)?;
    let zone = &call.realm.instance(instance)?.zone;
    let mut x = Xml::default();
    x.list("snapshotSet", &made, |x, s| x.snapshot_info(call.realm, s, zone, call.now));
    Ok(x.finish())
}

/// Returns the volumes to take: all attached ones that are not excluded. Whether EC2 takes a volume
/// that is attaching or detaching is unverified; this simulator does.
fn volumes(
    call: &Call<'_>,
    instance: &str,
    without_root: bool,
    excluded: &[&str],
) -> ApiResult<Vec<String>> {
    call.realm.instance(instance)?;
    let mut rest: BTreeSet<&str> = excluded.iter().copied().collect();
    let mut taken = Vec::new();
    for v in call.realm.volumes_of(instance) {
        let is_root = v.attachment(instance).is_some_and(|a| a.device == ROOT_DEVICE);
        let is_excluded = rest.remove(v.id.as_str());
        if is_excluded && is_root {
            refuse_value!(
                "The volume '{}' is the root volume of instance '{instance}'. Use ExcludeBootVolume to exclude it.",
                v.id
            );
        }
        if !(is_excluded || is_root && without_root) {
            taken.push(v.id.clone());
        }
    }
    if let Some(id) = rest.first() {
        let message = format!("The volume '{id}' is not attached to instance '{instance}'");
        return Err(ApiError::client("InvalidAttachment.NotFound", message));
    }
    if taken.is_empty() {
        refuse_combination!("The instance '{instance}' has no volumes that are not excluded.");
    }
    Ok(taken)
}

/// Checks that a snapshot of this volume is possible now, after `before` other snapshots of the
/// same request.
fn check_source(call: &Call<'_>, v: &Volume, before: usize) -> ApiResult<()> {
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
    quota_check::snapshot(call, v, before)
}

/// Makes a snapshot of each volume, with these tags, all with the bytes of one moment.
fn make(
    call: &mut Call<'_>,
    request: &Request<'_>,
    of: Vec<(String, Tags)>,
) -> ApiResult<Vec<Snapshot>> {
    let mut made = Vec::new();
    for (member, (volume, tags)) in of.into_iter().enumerate() {
        let usual = call.latency.sample("snapshot");
        let failed = call.fault(|f| match f {
            Fault::FailSnapshot { after_ms, member: only } => {
                only.is_none_or(|only| only == member).then_some(*after_ms)
            }
            _ => None,
        });
        let tag_lag = call.fault(|f| match f {
            Fault::TagsOneByOne { ms } => Some(ms * (member as u64 + 1)),
            _ => None,
        });
        let (fails, until) = (failed.is_some(), call.begin.plus(failed.unwrap_or(usual)));
        let v = call.realm.volume(&volume)?;
        made.push(Snapshot {
            id: call.ids.issue("snap"),
            size: v.shape.size,
            started: call.now,
            life: SnapshotState::Pending { until, fails },
            encrypted: v.encrypted,
            kms_key: v.kms_key.clone(),
            outpost: request.outpost.map(str::to_owned),
            description: request.description.to_owned(),
            lock: None,
            archival: None,
            tags,
            found_by_tags: call.now.plus(tag_lag.unwrap_or(0)),
            volume,
        });
    }
    let members: Vec<_> = made.iter().map(|s| (s.volume.clone(), s.id.clone())).collect();
    call.on_devices(|d| d.snapshot(&members))?;
    let now = call.now;
    for s in &made {
        call.realm.put_snapshot(s.clone());
        call.realm.update_volume(&s.volume, |v| v.last_snapshot = Some(now));
        call.effects.push(s.id.clone());
    }
    Ok(made)
}

fn delete(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.required("SnapshotId", "SnapshotId")?;
    p.finish()?;
    Call::check_snapshot_id(id)?;
    let s = call.realm.snapshot(id)?;
    call.permit_on(id)?;
    call.dry_run()?;
    if s.locked(call.now).is_some() {
        // unverified code and wording.
        refuse!("SnapshotLocked", "The snapshot '{id}' is locked and cannot be deleted.");
    }
    call.on_devices(|d| d.images.delete_snapshot(id))?;
    call.realm.remove_snapshot(id);
    call.realm.fast_restores.retain(|(snapshot, _)| snapshot != id);
    call.effects.push(id.to_owned());
    Ok("<return>true</return>".to_owned())
}

static DESCRIBE: Describe<Snapshot> = Describe {
    ids: ("SnapshotId", "snapshotIdsSet"),
    check_id: Call::check_snapshot_id,
    all: Realm::snapshots,
    missing: ApiError::no_snapshots,
    tags: |s| &s.tags,
    fields: &[
        ("snapshot-id", |s| vec![s.id.clone()]),
        ("tag-key", |_| Vec::new()),
        ("volume-id", |s| vec![s.volume.clone()]),
    ],
    id_filter: "snapshot-id",
    page_sizes: (5, 1000),
    set: "snapshotSet",
};

fn describe(call: &mut Call<'_>) -> ApiResult<String> {
    let (owners, realm) = (call.params.list("Owner"), &*call.realm);
    let mut query = DESCRIBE.parse(call)?;
    let (by_tags, now) = (query.filters.are_by_tags(), call.now);
    query.keep = Box::new(move |s| !by_tags || s.found_by_tags <= now);
    // All simulated snapshots belong to this account, so a query for another owner finds none.
    let mine = owners.is_empty() || owners.iter().any(|o| *o == "self" || *o == realm.account);
    let candidates = if mine { query.candidates(call)? } else { Some(Vec::new()) };
    Ok(query.answer(call, candidates, |x, s| x.snapshot(realm, s, call.now)))
}
