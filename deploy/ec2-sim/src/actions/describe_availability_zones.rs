//! DescribeAvailabilityZones.

use super::Call;
use crate::state::resources::zone::Zone;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::filter::Filters;
use crate::wire::xml::Xml;

const FILTERS: &[&str] = &[
    "group-name",
    "message",
    "opt-in-status",
    "region-name",
    "state",
    "zone-id",
    "zone-name",
    "zone-type",
];

pub(super) fn describe_availability_zones(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let names = p.list("ZoneName");
    let ids = p.list("ZoneId");
    p.boolean("AllAvailabilityZones")?;
    let filters = Filters::parse(p, FILTERS)?;
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
            && filters.accept(|name| field(call, z, name))
    });
    let mut x = Xml::new();
    x.list("availabilityZoneInfo", shown, |x, z| {
        x.text("zoneName", &z.name)
            .text("zoneId", &z.id)
            .text("zoneState", &z.state)
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

fn field(call: &Call<'_>, z: &Zone, name: &str) -> Vec<String> {
    vec![match name {
        "group-name" | "region-name" => call.realm.region.clone(),
        "opt-in-status" => "opt-in-not-required".to_owned(),
        "state" => z.state.clone(),
        "zone-id" => z.id.clone(),
        "zone-name" => z.name.clone(),
        "zone-type" => "availability-zone".to_owned(),
        _ => return Vec::new(),
    }]
}
