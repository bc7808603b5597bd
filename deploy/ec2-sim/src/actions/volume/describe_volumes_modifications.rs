//! DescribeVolumesModifications: the latest modification of each volume.

use crate::actions::Call;
use crate::actions::describe_page::{next_token, page, select};
use crate::actions::render;
use crate::state::ids::well_formed;
use crate::state::resources::modification::Modification;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::filter::Filters;
use crate::wire::xml::Xml;

/// The documentation names `targetMultiAttachEnabled`; the service accepts
/// `target-multi-attach-enabled`.
const FILTERS: &[&str] = &[
    "modification-state",
    "original-iops",
    "original-multi-attach-enabled",
    "original-size",
    "original-throughput",
    "original-volume-type",
    "start-time",
    "target-iops",
    "target-multi-attach-enabled",
    "target-size",
    "target-throughput",
    "target-volume-type",
    "volume-id",
];

pub(crate) fn describe_volumes_modifications(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("VolumeId");
    let filters = Filters::parse(p, FILTERS)?;
    let page = page(call, ("volumeIdsSet", !ids.is_empty()), (1, 500))?;
    p.finish()?;
    for id in &ids {
        if !well_formed(id, "vol") {
            return Err(ApiError::client(
                "InvalidVolumeID.Malformed",
                format!("Value ( {id} ) for parameter VOLUME is invalid. "),
            ));
        }
    }
    let volumes = call.realm.volumes();
    let mut candidates = None;
    if !ids.is_empty() {
        let mut found = Vec::new();
        for id in &ids {
            match volumes.get(*id).filter(|v| call.shows(&v.id)) {
                Some(v) if v.modification.is_some() => found.push(v),
                Some(_) => {
                    return Err(ApiError::client(
                        "InvalidVolumeModification.NotFound",
                        format!("Modification for volume '{id}' does not exist."),
                    ));
                }
                None => return Err(ApiError::no_volume(id)),
            }
        }
        candidates = Some(found);
    } else if let Some(wanted) = filters.literal("volume-id")
        && page.max.is_none()
    {
        candidates = Some(wanted.iter().filter_map(|id| volumes.get(id)).collect());
    }
    let found = select(
        volumes,
        candidates,
        &page,
        &filters,
        |v, name| match (&v.modification, name) {
            (None, _) => Vec::new(),
            (Some(_), "volume-id") => vec![v.id.clone()],
            (Some(m), name) => field(m, name),
        },
        |v| &v.tags,
    );
    let mut x = Xml::new();
    x.list(
        "volumeModificationSet",
        found
            .rows
            .iter()
            .filter(|v| call.shows(&v.id))
            .filter_map(|v| Some((v, v.modification.as_ref()?))),
        |x, (v, m)| render::modification(x, &v.id, m, call.now),
    );
    next_token(&mut x, found.next.as_deref(), call.action, call.now);
    Ok(x.finish())
}

fn field(m: &Modification, name: &str) -> Vec<String> {
    let number = |n: Option<u32>| n.map(|n| n.to_string()).into_iter().collect();
    if let Some((side, attribute)) = name.split_once('-') {
        let shape = match side {
            "original" => &m.original,
            "target" => &m.target,
            _ => {
                return match name {
                    "modification-state" => vec![m.status().to_owned()],
                    "start-time" => vec![m.started.iso()],
                    _ => Vec::new(),
                };
            }
        };
        return match attribute {
            "iops" => number(shape.iops),
            "throughput" => number(shape.throughput),
            "size" => number(Some(shape.size)),
            "volume-type" => vec![shape.volume_type.clone()],
            "multi-attach-enabled" => vec![shape.multi_attach.to_string()],
            _ => Vec::new(),
        };
    }
    Vec::new()
}
