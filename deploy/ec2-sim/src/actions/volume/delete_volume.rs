//! DeleteVolume.

use crate::actions::Call;
use crate::state::ids::well_formed;
use crate::state::resources::volume::Life;
use crate::wire::api_error::{ApiError, ApiResult};

/// Answers DeleteVolume. The order of the checks is EC2's: id given, id well-formed, volume exists,
/// permission, dry run, attachments.
pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.text("VolumeId");
    p.finish()?;
    let Some(id) = id else {
        return Err(ApiError::client(
            "MissingParameter",
            "The request must include the VolumeId parameter. Add the required parameter and retry the request.",
        ));
    };
    if !well_formed(id, "vol") {
        return Err(ApiError::value(format!("The volume ID '{id}' is malformed")));
    }
    let volume = call.realm.volume(id)?;
    call.permit_on(id)?;
    call.dry_run()?;
    if let Some(a) = volume.attachments.first() {
        return Err(ApiError::client(
            "VolumeInUse",
            format!("Volume {id} is currently attached to {}", a.instance),
        ));
    }
    let until = call.begin.plus(call.latency.sample("volume_delete"));
    call.realm.update_volume(id, |v| v.life = Life::Deleting { until });
    call.effects.push(id.to_owned());
    Ok("<return>true</return>".to_owned())
}
