//! DescribeAvailabilityZones.

use super::Call;
use crate::state::resources::{ZoneKind, name_of};
use crate::wire::{ApiResult, Xml};

pub(super) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    call.params.finish()?;
    let realm = &*call.realm;
    let mut x = Xml::default();
    x.list("availabilityZoneInfo", &realm.zones, |x, z| {
        // EC2 lists a zone of the other kinds only once the account has opted in.
        let opted = match z.kind {
            ZoneKind::Availability => "opt-in-not-required",
            ZoneKind::Local | ZoneKind::Wavelength => "opted-in",
        };
        x.text("zoneName", &z.name)
            .text("zoneId", &z.id)
            .text("zoneState", &name_of(z.state))
            .text("regionName", &realm.region)
            .text("zoneType", &name_of(z.kind))
            .text("optInStatus", opted);
    });
    Ok(x.finish())
}
