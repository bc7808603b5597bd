//! DescribeInstances.

use crate::actions::Call;
use crate::actions::describe_page::{next_token, page, select};
use crate::actions::render;
use crate::state::resources::instance::Instance;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::filter::Filters;
use crate::wire::xml::Xml;

const FILTERS: &[&str] = &[
    "availability-zone",
    "availability-zone-id",
    "block-device-mapping.device-name",
    "block-device-mapping.status",
    "block-device-mapping.volume-id",
    "image-id",
    "instance-id",
    "instance-state-code",
    "instance-state-name",
    "instance-type",
    "launch-time",
    "outpost-arn",
    "owner-id",
    "root-device-name",
    "tag-key",
    "tag-value",
];

pub(crate) fn describe_instances(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("InstanceId");
    p.boolean("IncludeManagedResources")?;
    let filters = Filters::parse(p, FILTERS)?;
    let page = page(call, ("instancesSet", !ids.is_empty()), (5, 1000))?;
    p.finish()?;
    let mut candidates = by_ids(call, &ids)?;
    if candidates.is_none()
        && page.max.is_none()
        && let Some(wanted) = filters.literal("instance-id")
    {
        let known = call.realm.instances();
        candidates = Some(wanted.iter().filter_map(|id| known.get(id)).collect());
    }
    let found = select(
        call.realm.instances(),
        candidates,
        &page,
        &filters,
        |i, name| field(call, i, name),
        |i| &i.tags,
    );
    let realm = &*call.realm;
    let mut x = Xml::new();
    let shown = found.rows.into_iter().filter(|i| call.shows(&i.id));
    x.list("reservationSet", shown, |x, i| {
        x.text("reservationId", &i.id.replacen("i-", "r-", 1))
            .text("ownerId", &realm.account)
            .text("groupSet", "")
            .list("instancesSet", [i], |x, i| {
                render::instance(x, realm, i, call.now);
            });
    });
    next_token(&mut x, found.next.as_deref(), call.action, call.now);
    Ok(x.finish())
}

/// Returns the instances of a list of ids, or `None` if the list is empty. A missing instance fails
/// the whole call.
pub(super) fn by_ids<'a>(call: &'a Call<'_>, ids: &[&str]) -> ApiResult<Option<Vec<&'a Instance>>> {
    if ids.is_empty() {
        return Ok(None);
    }
    for id in ids {
        Call::check_instance_id(id)?;
    }
    let known = call.realm.instances();
    let missing: Vec<&str> = ids
        .iter()
        .copied()
        .filter(|id| !known.contains_key(*id) || !call.shows(id))
        .collect();
    match missing.as_slice() {
        [] => Ok(Some(ids.iter().filter_map(|id| known.get(*id)).collect())),
        [id] => Err(ApiError::no_instance(id)),
        // unverified wording for several ids.
        several => Err(ApiError::client(
            "InvalidInstanceID.NotFound",
            format!("The instance IDs '{}' do not exist", several.join(", ")),
        )),
    }
}

fn field(call: &Call<'_>, i: &Instance, name: &str) -> Vec<String> {
    let mapping = |f: fn(&str, &crate::state::resources::attachment::Attachment) -> String| {
        call.realm
            .volumes_of(&i.id)
            .filter_map(|v| Some(f(&v.id, v.attachment(&i.id)?)))
            .collect()
    };
    match name {
        "availability-zone" => vec![i.zone.clone()],
        "availability-zone-id" => vec![call.realm.zone_id(&i.zone).to_owned()],
        "block-device-mapping.device-name" => mapping(|_, a| a.device.clone()),
        "block-device-mapping.status" => mapping(|_, a| a.status().to_owned()),
        "block-device-mapping.volume-id" => mapping(|v, _| v.to_owned()),
        "image-id" => vec![i.image.clone()],
        "instance-id" => vec![i.id.clone()],
        "instance-state-code" => vec![i.state().0.to_string()],
        "instance-state-name" => vec![i.state().1.to_owned()],
        "instance-type" => vec![i.instance_type.clone()],
        "launch-time" => vec![i.launched.iso()],
        "outpost-arn" => i.outpost.iter().cloned().collect(),
        "owner-id" => vec![call.realm.account.clone()],
        "root-device-name" => vec![i.root_device.clone()],
        _ => Vec::new(),
    }
}
