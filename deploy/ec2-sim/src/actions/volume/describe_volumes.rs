//! DescribeVolumes.

use crate::actions::describe_query::Describe;
use crate::actions::{Call, render};
use crate::state::{Realm, Volume, well_formed};
use crate::wire::{ApiError, ApiResult, refuse_value};

static DESCRIBE: Describe<Volume> = Describe {
    ids: ("VolumeId", "volumeIdsSet"),
    check_id,
    all: Realm::volumes,
    missing: ApiError::no_volumes,
    fields: &[("tag-key", |_| Vec::new()), ("volume-id", |v| vec![v.id.clone()])],
    id_filter: "volume-id",
    page_sizes: (5, 500),
    set: "volumeSet",
};

fn check_id(id: &str) -> ApiResult<()> {
    if !well_formed(id, "vol") {
        refuse_value!("Value ({id}) for parameter volumes is invalid. Expected: 'vol-...'.");
    }
    Ok(())
}

/// Answers DescribeVolumes. A dry run is answered first, even with malformed ids.
pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    DESCRIBE.answer(call, |x, v| render::volume(x, call.realm, v, render::View::Full))
}
