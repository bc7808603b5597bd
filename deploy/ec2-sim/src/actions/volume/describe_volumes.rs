//! DescribeVolumes.

use crate::actions::Call;
use crate::actions::describe_page::{next_token, page, select};
use crate::actions::render::{self, View};
use crate::state::ids::well_formed;
use crate::state::resources::volume::{Origin, Volume};
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::filter::Filters;
use crate::wire::page::Page;
use crate::wire::xml::Xml;

const FILTERS: &[&str] = &[
    "attachment.attach-time",
    "attachment.delete-on-termination",
    "attachment.device",
    "attachment.instance-id",
    "attachment.status",
    "availability-zone",
    "availability-zone-id",
    "create-time",
    "encrypted",
    "fast-restored",
    "multi-attach-enabled",
    "operator.managed",
    "operator.principal",
    "size",
    "snapshot-id",
    "source-volume-id",
    "status",
    "tag-key",
    "tag-value",
    "volume-id",
    "volume-type",
];

/// Answers DescribeVolumes. A dry run is answered first, even with malformed ids.
pub(crate) fn describe_volumes(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("VolumeId");
    p.boolean("IncludeManagedResources")?;
    let filters = Filters::parse(p, FILTERS)?;
    let page = page(call, ("volumeIdsSet", !ids.is_empty()), (5, 500))?;
    p.finish()?;
    for id in &ids {
        if !well_formed(id, "vol") {
            return Err(ApiError::value(format!(
                "Value ({id}) for parameter volumes is invalid. Expected: 'vol-...'."
            )));
        }
    }
    let realm = &*call.realm;
    let candidates = if ids.is_empty() {
        indexed(call, &filters, &page)
    } else {
        Some(by_ids(call, &ids)?)
    };
    let found = select(
        realm.volumes(),
        candidates,
        &page,
        &filters,
        |v, name| field(call, v, name),
        |v| &v.tags,
    );
    let mut x = Xml::new();
    let shown = found.rows.into_iter().filter(|v| call.shows(&v.id));
    x.list("volumeSet", shown, |x, v| {
        render::volume(x, realm, v, View::Full);
    });
    next_token(&mut x, found.next.as_deref(), call.action, call.now);
    Ok(x.finish())
}

/// Returns the volumes of a list of ids. A missing volume fails the whole call.
pub(super) fn by_ids<'a>(call: &'a Call<'_>, ids: &[&str]) -> ApiResult<Vec<&'a Volume>> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let missing: Vec<&str> = ids
        .iter()
        .copied()
        .filter(|id| !call.realm.volumes().contains_key(*id) || !call.shows(id))
        .collect();
    match missing.as_slice() {
        [] => Ok(ids
            .iter()
            .filter_map(|id| call.realm.volumes().get(*id))
            .collect()),
        [id] => Err(ApiError::no_volume(id)),
        // unverified wording for several ids.
        several => Err(ApiError::client(
            "InvalidVolume.NotFound",
            format!("The volumes '{}' do not exist.", several.join(", ")),
        )),
    }
}

/// Returns the candidates that an index finds for the filters, if the request asks for no paging.
fn indexed<'a>(call: &'a Call<'_>, filters: &Filters, page: &Page) -> Option<Vec<&'a Volume>> {
    if page.max.is_some() || page.after.is_some() {
        return None;
    }
    let volumes = call.realm.volumes();
    let mut ids: Vec<&str> = Vec::new();
    if let Some(wanted) = filters.literal("volume-id") {
        ids.extend(wanted.iter().map(String::as_str));
    } else if let Some((key, values)) = filters.literal_tag() {
        for value in values {
            ids.extend(call.realm.tagged(key, value).map(String::as_str));
        }
    } else if let Some(instances) = filters.literal("attachment.instance-id") {
        for instance in instances {
            ids.extend(call.realm.volumes_of(instance).map(|v| v.id.as_str()));
        }
    } else {
        return None;
    }
    ids.sort_unstable();
    ids.dedup();
    Some(ids.into_iter().filter_map(|id| volumes.get(id)).collect())
}

fn field(call: &Call<'_>, v: &Volume, name: &str) -> Vec<String> {
    let each = |f: fn(&crate::state::resources::attachment::Attachment) -> String| {
        v.attachments.iter().map(f).collect()
    };
    match name {
        "attachment.attach-time" => each(|a| a.since.iso()),
        "attachment.delete-on-termination" => each(|a| a.delete_on_termination.to_string()),
        "attachment.device" => each(|a| a.device.clone()),
        "attachment.instance-id" => each(|a| a.instance.clone()),
        "attachment.status" => each(|a| a.status().to_owned()),
        "availability-zone" => vec![v.zone.clone()],
        "availability-zone-id" => vec![call.realm.zone_id(&v.zone).to_owned()],
        "create-time" => vec![v.created.iso()],
        "encrypted" => vec![v.encrypted.to_string()],
        "fast-restored" => vec![v.restored_fast.to_string()],
        "multi-attach-enabled" => vec![v.shape.multi_attach.to_string()],
        "operator.managed" => vec!["false".to_owned()],
        "size" => vec![v.shape.size.to_string()],
        "snapshot-id" => match &v.origin {
            Origin::Snapshot(id) => vec![id.clone()],
            _ => vec![String::new()],
        },
        "source-volume-id" => match &v.origin {
            Origin::Volume(id) => vec![id.clone()],
            _ => Vec::new(),
        },
        "status" => vec![v.status().to_owned()],
        "volume-id" => vec![v.id.clone()],
        "volume-type" => vec![v.shape.volume_type.clone()],
        _ => Vec::new(),
    }
}
