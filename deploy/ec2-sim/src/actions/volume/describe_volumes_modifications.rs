//! DescribeVolumesModifications: the latest modification of each volume.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::actions::render;
use crate::state::ids::well_formed;
use crate::state::resources::volume::Volume;
use crate::wire::api_error::{ApiError, ApiResult};

const FIELDS: &[Field<Volume>] = &[("volume-id", |v| vec![v.id.clone()])];

pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let ids = call.params.list("VolumeId");
    let mut query = Query::parse(call, FIELDS, ("volumeIdsSet", &ids), (1, 500))?;
    query.keep = |v| v.modification.is_some();
    for id in &ids {
        if !well_formed(id, "vol") {
            return Err(ApiError::client(
                "InvalidVolumeID.Malformed",
                format!("Value ( {id} ) for parameter VOLUME is invalid. "),
            ));
        }
    }
    let volumes = call.realm.volumes();
    let candidates = query.named(call, volumes, &ids, "volume-id", ApiError::no_volumes)?;
    let mut named = candidates.iter().flatten().filter(|_| !ids.is_empty());
    if let Some(v) = named.find(|v| v.modification.is_none()) {
        return Err(ApiError::client(
            "InvalidVolumeModification.NotFound",
            format!("Modification for volume '{}' does not exist.", v.id),
        ));
    }
    let set = "volumeModificationSet";
    Ok(query.answer(call, set, volumes, candidates, |x, v| {
        if let Some(m) = &v.modification {
            render::modification(x, &v.id, m, call.now);
        }
    }))
}
