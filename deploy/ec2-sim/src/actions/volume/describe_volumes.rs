//! DescribeVolumes.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::actions::render::{self, View};
use crate::state::ids::well_formed;
use crate::state::resources::attachment::Attachment;
use crate::state::resources::volume::{Origin, Volume};
use crate::wire::api_error::{ApiError, ApiResult};

const FIELDS: &[Field<Volume>] = &[
    ("attachment.device", |_, v| each(v, |a| &a.device)),
    ("attachment.instance-id", |_, v| each(v, |a| &a.instance)),
    ("attachment.status", |_, v| each(v, Attachment::status)),
    ("availability-zone", |_, v| vec![v.zone.clone()]),
    ("encrypted", |_, v| vec![v.encrypted.to_string()]),
    ("size", |_, v| vec![v.shape.size.to_string()]),
    ("snapshot-id", |_, v| match &v.origin {
        Origin::Snapshot(id) => vec![id.clone()],
        _ => vec![String::new()],
    }),
    ("status", |_, v| vec![v.status().to_owned()]),
    ("tag-key", |_, _| Vec::new()),
    ("tag-value", |_, _| Vec::new()),
    ("volume-id", |_, v| vec![v.id.clone()]),
    ("volume-type", |_, v| vec![v.shape.volume_type.clone()]),
];

fn each(v: &Volume, of: fn(&Attachment) -> &str) -> Vec<String> {
    v.attachments.iter().map(|a| of(a).to_owned()).collect()
}

/// Answers DescribeVolumes. A dry run is answered first, even with malformed ids.
pub(crate) fn describe_volumes(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("VolumeId");
    p.boolean("IncludeManagedResources")?;
    let query = Query::parse(call, FIELDS, ("volumeIdsSet", &ids), (5, 500))?;
    for id in &ids {
        if !well_formed(id, "vol") {
            return Err(ApiError::value(format!(
                "Value ({id}) for parameter volumes is invalid. Expected: 'vol-...'."
            )));
        }
    }
    let realm = &*call.realm;
    let all = realm.volumes();
    let named = query.named(call, all, &ids, "volume-id", ApiError::no_volumes)?;
    let candidates = named.or_else(|| indexed(call, &query));
    Ok(query.answer(call, "volumeSet", all, candidates, |x, v| {
        render::volume(x, realm, v, View::Full);
    }))
}

/// Returns the candidates that an index finds for the filters, if the request asks for no paging.
fn indexed<'a>(call: &'a Call<'_>, query: &Query<Volume>) -> Option<Vec<&'a Volume>> {
    if !query.unpaged() {
        return None;
    }
    let filters = &query.filters;
    let volumes = call.realm.volumes();
    let mut ids: Vec<&str> = Vec::new();
    if let Some((key, values)) = filters.literal_tag() {
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
