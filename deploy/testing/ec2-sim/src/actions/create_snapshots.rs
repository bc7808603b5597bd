//! CreateSnapshots: a snapshot of each volume of an instance, all of one moment. The call takes no
//! client token, so that a repeated call makes a second set.
//!
//! The codes and wordings of all refusals here are unverified, and so is their order.

use super::Call;
use super::snapshots::{Request, check_source, make};
use crate::state::resources::{ROOT_DEVICE, Tags, tags};
use crate::wire::{ApiError, ApiResult, Xml, refuse_combination, refuse_value};
use std::collections::BTreeSet;

/// The maximum number of excluded volumes in a request.
const MAX_EXCLUDED: usize = 40;

pub(super) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
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
