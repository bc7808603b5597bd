//! DescribeSnapshots.

use crate::actions::Call;
use crate::actions::describe_page::{next_token, page, select};
use crate::actions::render;
use crate::state::resources::snapshot::Snapshot;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::filter::Filters;
use crate::wire::xml::Xml;

const FILTERS: &[&str] = &[
    "description",
    "encrypted",
    "owner-alias",
    "owner-id",
    "progress",
    "snapshot-id",
    "start-time",
    "status",
    "storage-tier",
    "tag-key",
    "tag-value",
    "transfer-type",
    "volume-id",
    "volume-size",
];

pub(crate) fn describe_snapshots(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("SnapshotId");
    let owners = p.list("Owner");
    let restorable = p.list("RestorableBy");
    let filters = Filters::parse(p, FILTERS)?;
    let page = page(call, ("snapshotIdsSet", !ids.is_empty()), (5, 1000))?;
    p.finish()?;
    for id in &ids {
        Call::check_snapshot_id(id)?;
    }
    let realm = &*call.realm;
    // All simulated snapshots belong to this account, so a query for another owner finds none.
    let mine =
        |list: &[&str]| list.is_empty() || list.iter().any(|o| *o == "self" || *o == realm.account);
    let snapshots = realm.snapshots();
    let mut candidates = None;
    if !mine(&owners) || !mine(&restorable) {
        candidates = Some(Vec::new());
    } else if !ids.is_empty() {
        candidates = Some(by_ids(call, &ids)?);
    } else if page.max.is_none() && page.after.is_none() {
        if let Some(wanted) = filters.literal("snapshot-id") {
            candidates = Some(wanted.iter().filter_map(|id| snapshots.get(id)).collect());
        } else if let Some((key, values)) = filters.literal_tag() {
            let tagged = values.iter().flat_map(|v| realm.tagged(key, v));
            candidates = Some(tagged.filter_map(|id| snapshots.get(id)).collect());
        }
    }
    let found = select(
        snapshots,
        candidates,
        &page,
        &filters,
        |s, name| field(call, s, name),
        |s| &s.tags,
    );
    let mut x = Xml::new();
    let shown = found.rows.into_iter().filter(|s| call.shows(&s.id));
    x.list("snapshotSet", shown, |x, s| {
        render::snapshot(x, realm, s, call.now);
    });
    next_token(&mut x, found.next.as_deref(), call.action, call.now);
    Ok(x.finish())
}

/// Returns the snapshots of a list of ids. A missing snapshot fails the whole call.
pub(super) fn by_ids<'a>(call: &'a Call<'_>, ids: &[&str]) -> ApiResult<Vec<&'a Snapshot>> {
    ids.iter()
        .map(|id| {
            call.realm
                .snapshots()
                .get(*id)
                .filter(|s| call.shows(&s.id))
                .ok_or_else(|| ApiError::no_snapshot(id))
        })
        .collect()
}

fn field(call: &Call<'_>, s: &Snapshot, name: &str) -> Vec<String> {
    vec![match name {
        "description" => s.description.clone(),
        "encrypted" => s.encrypted.to_string(),
        "owner-id" => call.realm.account.clone(),
        "progress" => s.progress(call.now),
        "snapshot-id" => s.id.clone(),
        "start-time" => s.started.iso(),
        "status" => s.status().to_owned(),
        "storage-tier" => "standard".to_owned(),
        "volume-id" => s.volume.clone(),
        "volume-size" => s.size.to_string(),
        _ => return Vec::new(),
    }]
}
