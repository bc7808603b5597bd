//! DeleteVolume.

use crate::actions::{ActionRow, Call};
use crate::state::resources::VolumeState;
use crate::state::well_formed;
use crate::wire::{ApiResult, refuse, refuse_value};

pub(crate) const ROWS: &[ActionRow] = &[("DeleteVolume", answer, "VolumeId={volume}")];

/// Answers DeleteVolume. The order of the checks is EC2's: id given, id well-formed, volume exists,
/// permission, dry run, attachments.
fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.text("VolumeId");
    p.finish()?;
    let Some(id) = id else {
        refuse!(
            "MissingParameter",
            "The request must include the VolumeId parameter. Add the required parameter and retry the request."
        );
    };
    if !well_formed(id, "vol") {
        refuse_value!("The volume ID '{id}' is malformed");
    }
    let volume = call.realm.volume(id)?;
    call.permit_on(id)?;
    call.dry_run()?;
    if let Some(a) = volume.attachments.first() {
        refuse!("VolumeInUse", "Volume {id} is currently attached to {}", a.instance);
    }
    let until = call.begin.plus(call.latency.sample("volume_delete"));
    call.realm.update_volume(id, |v| v.life = VolumeState::Deleting { until });
    call.effects.push(id.to_owned());
    Ok("<return>true</return>".to_owned())
}
