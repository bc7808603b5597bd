//! DescribeInstances, DescribeInstanceStatus and DescribeInstanceTypes.

use crate::actions::describe_query::{Describe, by_ids};
use crate::actions::{ActionRow, Call, render};
use crate::state::Realm;
use crate::state::resources::instance_type::{InstanceType, TYPES, find};
use crate::state::resources::{CheckResult, Instance, InstanceState, name_of};
use crate::wire::{ApiError, ApiResult, Xml, refuse};

pub(crate) const ROWS: &[ActionRow] = &[
    ("DescribeInstanceStatus", status, ""),
    ("DescribeInstanceTypes", types, ""),
    ("DescribeInstances", instances, ""),
];

static DESCRIBE: Describe<Instance> = Describe {
    ids: ("InstanceId", "instancesSet"),
    check_id: Call::check_instance_id,
    all: Realm::instances,
    missing: ApiError::no_instances,
    fields: &[
        ("instance-id", |i| vec![i.id.clone()]),
        ("outpost-arn", |i| i.outpost.iter().cloned().collect()),
    ],
    id_filter: "instance-id",
    page_sizes: (5, 1000),
    set: "reservationSet",
};

fn instances(call: &mut Call<'_>) -> ApiResult<String> {
    let realm = &*call.realm;
    DESCRIBE.answer(call, |x, i| {
        x.text("reservationId", &i.id.replacen("i-", "r-", 1))
            .text("ownerId", &realm.account)
            .list("instancesSet", [i], |x, i| {
                render::instance(x, realm, i, call.now);
            });
    })
}

/// Answers DescribeInstanceStatus with the instances that run, without filters and pages.
fn status(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let ids = call.params.list("InstanceId");
    call.params.finish()?;
    ids.iter().try_for_each(|id| Call::check_instance_id(id))?;
    let mut shown = by_ids(call, call.realm.instances(), &ids, ApiError::no_instances)?;
    shown.retain(|i| matches!(i.life, InstanceState::Running));
    let mut x = Xml::default();
    x.list("instanceStatusSet", shown, status_of);
    Ok(x.finish())
}

fn status_of(x: &mut Xml, i: &Instance) {
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

fn types(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let names = p.list("InstanceType");
    p.finish()?;
    let is_known = |name: &&&str| find(name).is_some();
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        // unverified wording.
        refuse!(
            "InvalidInstanceType",
            "The following supplied instance types do not exist: [{unknown}]"
        );
    }
    let shown = TYPES.iter().filter(|t| names.is_empty() || names.contains(&t.name));
    let mut x = Xml::default();
    x.list("instanceTypeSet", shown, instance_type);
    Ok(x.finish())
}

fn instance_type(x: &mut Xml, t: &InstanceType) {
    x.text("instanceType", t.name);
    x.nest("ebsInfo", |x| {
        x.value("maximumEbsAttachments", t.maximum_attachments)
            .text("attachmentLimitType", t.limit_type)
            .value("maximumEbsCards", t.cards)
            .list("ebsCardSet", 0..t.cards, |x, n| {
                x.value("ebsCardIndex", n);
            });
    });
}
