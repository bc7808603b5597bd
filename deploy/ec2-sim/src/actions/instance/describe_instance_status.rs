//! DescribeInstanceStatus.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::state::resources::instance::{Instance, Life};
use crate::state::resources::instance_checks::{Check, Outcome};
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::xml::Xml;

const FIELDS: &[Field<Instance>] = &[
    ("attached-ebs-status.status", |_, i| found(i, 2)),
    ("instance-state-name", |_, i| vec![i.state().1.to_owned()]),
    ("instance-status.status", |_, i| found(i, 1)),
    ("system-status.status", |_, i| found(i, 0)),
];

/// The maximum number of instances that a request may name.
const MOST_IDS: usize = 100;

pub(crate) fn describe_instance_status(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("InstanceId");
    p.boolean("IncludeManagedResources")?;
    let not_running = p.boolean("IncludeAllInstances")?.unwrap_or(false);
    let mut query = Query::parse(call, FIELDS, ("instancesSet", &ids), (5, 1000))?;
    if !not_running {
        query.keep = |i| matches!(i.life, Life::Running);
    }
    if ids.len() > MOST_IDS {
        // unverified wording.
        return Err(ApiError::value(format!(
            "The maximum number of instance IDs that can be specified is {MOST_IDS}."
        )));
    }
    let all = call.realm.instances();
    for id in &ids {
        Call::check_instance_id(id)?;
    }
    // Instances cannot be filtered by id here.
    let candidates = query.named(call, all, &ids, "", ApiError::no_instances)?;
    let set = "instanceStatusSet";
    Ok(query.answer(call, set, all, candidates, |x, i| member(call, x, i)))
}

/// Returns the checks by element name; `None` for a check that EC2 does not make in the instance's
/// state.
fn checks(i: &Instance) -> [(&'static str, Option<Check>); 3] {
    let shown = |check: Check| match i.life {
        Life::Running => Some(check),
        Life::Pending { .. } => {
            Some(Check { outcome: Outcome::Initializing, impaired_since: None })
        }
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
                x.text("name", "reachability").text("status", check.outcome.reachability());
                if let Some(since) = check.impaired_since {
                    x.text("impairedSince", &since.iso());
                }
            });
        });
    }
}

/// Returns the status of the check at this place of [`checks`].
fn found(i: &Instance, check: usize) -> Vec<String> {
    vec![status(checks(i)[check].1).to_owned()]
}
