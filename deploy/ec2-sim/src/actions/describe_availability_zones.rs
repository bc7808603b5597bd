//! DescribeAvailabilityZones.

use super::Call;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::xml::Xml;

pub(super) fn describe_availability_zones(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let names = p.list("ZoneName");
    let ids = p.list("ZoneId");
    p.boolean("AllAvailabilityZones")?;
    p.finish()?;
    let realm = &*call.realm;
    for asked in &names {
        if realm.zone(asked).is_none() {
            return Err(unknown(asked));
        }
    }
    for asked in &ids {
        if realm.zones.iter().all(|z| z.id != *asked) {
            return Err(unknown(asked));
        }
    }
    let shown = realm.zones.iter().filter(|z| {
        (names.is_empty() || names.contains(&z.name.as_str()))
            && (ids.is_empty() || ids.contains(&z.id.as_str()))
    });
    let mut x = Xml::new();
    x.list("availabilityZoneInfo", shown, |x, z| {
        x.text("zoneName", &z.name)
            .text("zoneId", &z.id)
            .text("zoneState", z.state.name())
            .text("regionName", &realm.region)
            .text("zoneType", "availability-zone")
            .text("optInStatus", "opt-in-not-required")
            .text("groupName", &realm.region)
            .text("networkBorderGroup", &realm.region)
            .text("messageSet", "");
    });
    Ok(x.finish())
}

fn unknown(asked: &str) -> ApiError {
    // unverified wording.
    ApiError::value(format!("Invalid availability zone: [{asked}]"))
}
