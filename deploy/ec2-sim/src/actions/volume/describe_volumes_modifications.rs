//! DescribeVolumesModifications: the latest modification of each volume.

use super::modify_volume::check_id;
use crate::actions::describe_query::Describe;
use crate::actions::{Call, render};
use crate::state::{Realm, Volume};
use crate::wire::{ApiError, ApiResult, refuse};

static DESCRIBE: Describe<Volume> = Describe {
    ids: ("VolumeId", "volumeIdsSet"),
    check_id,
    all: Realm::volumes,
    missing: ApiError::no_volumes,
    fields: &[("volume-id", |v| vec![v.id.clone()])],
    id_filter: "volume-id",
    page_sizes: (1, 500),
    set: "volumeModificationSet",
};

pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let mut query = DESCRIBE.parse(call)?;
    query.keep = |v| v.modification.is_some();
    let candidates = query.candidates(call)?;
    let mut named = candidates.iter().flatten().filter(|_| !query.ids.is_empty());
    if let Some(v) = named.find(|v| v.modification.is_none()) {
        let id = &v.id;
        refuse!(
            "InvalidVolumeModification.NotFound",
            "Modification for volume '{id}' does not exist."
        );
    }
    Ok(query.answer(call, candidates, |x, v| {
        if let Some(m) = &v.modification {
            render::modification(x, &v.id, m, call.now);
        }
    }))
}
