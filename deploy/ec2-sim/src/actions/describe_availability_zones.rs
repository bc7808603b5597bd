//! DescribeAvailabilityZones.

use super::Call;
use crate::state::resources::name_of;
use crate::wire::{ApiResult, Xml};

pub(super) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    call.params.finish()?;
    let realm = &*call.realm;
    let mut x = Xml::default();
    x.list("availabilityZoneInfo", &realm.zones, |x, z| {
        x.text("zoneName", &z.name)
            .text("zoneId", &z.id)
            .text("zoneState", &name_of(z.state))
            .text("regionName", &realm.region)
            .text("zoneType", "availability-zone");
    });
    Ok(x.finish())
}
