//! DescribeInstanceStatus.

use super::describe_instances::by_ids;
use crate::actions::Call;
use crate::actions::describe_page::{next_token, page, select};
use crate::state::resources::instance::{Instance, Life};
use crate::state::resources::instance_checks::{Check, Outcome};
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::filter::Filters;
use crate::wire::xml::Xml;
use std::collections::BTreeMap;

const FILTERS: &[&str] = &[
    "attached-ebs-status.status",
    "availability-zone",
    "availability-zone-id",
    "instance-state-code",
    "instance-state-name",
    "instance-status.reachability",
    "instance-status.status",
    "system-status.reachability",
    "system-status.status",
];

/// The maximum number of instances that a request may name.
const MOST_IDS: usize = 100;

pub(crate) fn describe_instance_status(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("InstanceId");
    p.boolean("IncludeManagedResources")?;
    let all = p.boolean("IncludeAllInstances")?.unwrap_or(false);
    let filters = Filters::parse(p, FILTERS)?;
    let page = page(call, ("instancesSet", !ids.is_empty()), (5, 1000))?;
    p.finish()?;
    if ids.len() > MOST_IDS {
        // unverified wording.
        return Err(ApiError::value(format!(
            "The maximum number of instance IDs that can be specified is {MOST_IDS}."
        )));
    }
    let asked = |i: &Instance| (all || matches!(i.life, Life::Running)) && call.shows(&i.id);
    // Instances that were not requested take no place on a page.
    let mut there: BTreeMap<String, &Instance> = BTreeMap::new();
    let mut named = None;
    match by_ids(call, &ids)? {
        Some(found) => named = Some(found.into_iter().filter(|i| asked(i)).collect::<Vec<_>>()),
        None => there.extend(
            call.realm
                .instances()
                .iter()
                .filter(|(_, i)| asked(i))
                .map(|(id, i)| (id.clone(), i)),
        ),
    }
    let found = select(
        &there,
        named.as_ref().map(|named| named.iter().collect()),
        &page,
        &filters,
        |i, name| field(call, i, name),
        |i| &i.tags,
    );
    let mut x = Xml::new();
    x.list("instanceStatusSet", found.rows, |x, i| member(call, x, i));
    next_token(&mut x, found.next.as_deref(), call.action, call.now);
    Ok(x.finish())
}

/// Returns the checks by element name; `None` for a check that EC2 does not make in the instance's
/// state.
fn checks(i: &Instance) -> [(&'static str, Option<Check>); 3] {
    let shown = |check: Check| match i.life {
        Life::Running => Some(check),
        Life::Pending { .. } => Some(Check {
            outcome: Outcome::Initializing,
            impaired_since: None,
        }),
        _ => None,
    };
    [
        ("systemStatus", shown(i.checks.system)),
        ("instanceStatus", shown(i.checks.instance)),
        ("attachedEbsStatus", shown(i.checks.attached_ebs)),
    ]
}

fn status(check: Option<Check>) -> &'static str {
    check.map_or("not-applicable", |check| check.outcome.status())
}

fn member(call: &Call<'_>, x: &mut Xml, i: &Instance) {
    let (code, name) = i.state();
    x.text("instanceId", &i.id)
        .text("availabilityZone", &i.zone)
        .text("availabilityZoneId", call.realm.zone_id(&i.zone))
        .nest("instanceState", |x| {
            x.value("code", code).text("name", name);
        });
    for (element, check) in checks(i) {
        x.nest(element, |x| {
            x.text("status", status(check));
            x.list("details", check, |x, check| {
                x.text("name", "reachability")
                    .text("status", check.outcome.reachability());
                if let Some(since) = check.impaired_since {
                    x.text("impairedSince", &since.iso());
                }
            });
        });
    }
}

fn field(call: &Call<'_>, i: &Instance, name: &str) -> Vec<String> {
    let [(_, system), (_, instance), (_, ebs)] = checks(i);
    let reachability = |check: Option<Check>| {
        let word = check.map(|check| check.outcome.reachability().to_owned());
        word.into_iter().collect()
    };
    match name {
        "attached-ebs-status.status" => vec![status(ebs).to_owned()],
        "availability-zone" => vec![i.zone.clone()],
        "availability-zone-id" => vec![call.realm.zone_id(&i.zone).to_owned()],
        "instance-state-code" => vec![i.state().0.to_string()],
        "instance-state-name" => vec![i.state().1.to_owned()],
        "instance-status.reachability" => reachability(instance),
        "instance-status.status" => vec![status(instance).to_owned()],
        "system-status.reachability" => reachability(system),
        "system-status.status" => vec![status(system).to_owned()],
        _ => Vec::new(),
    }
}
