//! DescribeVolumes.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::actions::render::{self, View};
use crate::state::ids::well_formed;
use crate::state::resources::volume::Volume;
use crate::wire::api_error::{ApiError, ApiResult};

const FIELDS: &[Field<Volume>] =
    &[("tag-key", |_| Vec::new()), ("volume-id", |v| vec![v.id.clone()])];

/// Answers DescribeVolumes. A dry run is answered first, even with malformed ids.
pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("VolumeId");
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
    let candidates = named.or_else(|| query.tagged(realm, all));
    Ok(query.answer(call, "volumeSet", all, candidates, |x, v| {
        render::volume(x, realm, v, View::Full);
    }))
}
