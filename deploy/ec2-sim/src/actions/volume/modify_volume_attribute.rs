//! ModifyVolumeAttribute: sets whether I/O resumes automatically after a fault.

use crate::actions::Call;
use crate::wire::api_error::{ApiError, ApiResult};

pub(crate) fn modify_volume_attribute(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let id = p.required("VolumeId", "VolumeId")?;
    let value = p.boolean("AutoEnableIO.Value")?;
    let dry_run = call.wants_dry_run()?;
    p.finish()?;
    call.check_volume_id(id)?;
    call.permit_on(id)?;
    if dry_run {
        return Err(ApiError::dry_run());
    }
    let value = value.ok_or_else(|| ApiError::missing("autoEnableIO"))?;
    call.realm
        .update_volume(id, |v| v.auto_enable_io = value)
        .ok_or_else(|| ApiError::no_volume(id))?;
    call.effects.push(id.to_owned());
    Ok("<return>true</return>".to_owned())
}
