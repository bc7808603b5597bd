//! DescribeInstanceStatus, without filters and pages.

use crate::actions::Call;
use crate::actions::describe_query::by_ids;
use crate::state::resources::{CheckResult, Instance, InstanceState, name_of};
use crate::wire::{ApiError, ApiResult, Xml};

/// Answers DescribeInstanceStatus with the instances that run.
pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let ids = call.params.list("InstanceId");
    call.params.finish()?;
    Call::check_ids(&ids, Call::check_instance_id)?;
    let mut shown = by_ids(call, call.realm.instances(), &ids, ApiError::no_instances)?;
    shown.retain(|i| matches!(i.life, InstanceState::Running));
    let mut x = Xml::default();
    x.list("instanceStatusSet", shown, member);
    Ok(x.finish())
}

fn member(x: &mut Xml, i: &Instance) {
    let (code, name) = i.state();
    x.text("instanceId", &i.id).text("availabilityZone", &i.zone).nest("instanceState", |x| {
        x.value("code", code).text("name", name);
    });
    for (element, outcome) in [
        ("systemStatus", i.checks.system),
        ("instanceStatus", i.checks.instance),
        ("attachedEbsStatus", i.checks.attached_ebs),
    ] {
        x.nest(element, |x| {
            x.text("status", &name_of(outcome)).list("details", [outcome], detail);
        });
    }
}

fn detail(x: &mut Xml, outcome: CheckResult) {
    x.text("name", "reachability").text("status", &outcome.reachability());
}
