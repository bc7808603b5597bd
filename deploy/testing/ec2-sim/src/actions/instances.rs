//! DescribeInstances, DescribeInstanceStatus, DescribeInstanceTypes, StopInstances and
//! TerminateInstances, and the same changes by the control API.

use super::describe_query::{Describe, by_ids};
use super::{Call, EXISTING, Row};
use crate::state::Realm;
use crate::state::resources::InstanceState::{
    self, Pending, Running, ShuttingDown, Stopped, Stopping, Terminated,
};
use crate::state::resources::{Instance, InstanceChecks, TYPES, ZoneKind, find_type, name_of};
use crate::time::{Latency, Millis};
use crate::wire::{ApiError, ApiResult, Xml, refuse};

pub(super) const ACTIONS: &[Row] = &[
    ("DescribeAvailabilityZones", zones, "", &[]),
    ("DescribeInstanceStatus", status, "", &[]),
    ("DescribeInstanceTypes", types, "", &[]),
    ("DescribeInstances", instances, "", &[]),
    ("StopInstances", stop_instances, "InstanceId.1={instance}", &[("instance", EXISTING)]),
    (
        "TerminateInstances",
        terminate_instances,
        "InstanceId.1={instance}",
        &[("instance", EXISTING)],
    ),
];

static DESCRIBE: Describe<Instance> = Describe {
    ids: ("InstanceId", "instancesSet"),
    check_id: Call::check_instance_id,
    all: Realm::instances,
    missing: ApiError::no_instances,
    tags: |i| &i.tags,
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
        x.text("reservationId", &i.id.replacen("i-", "r-", 1)).text("ownerId", &realm.account).list(
            "instancesSet",
            [i],
            |x, i| x.instance(realm, i, call.now),
        )
    })
}

/// Answers DescribeInstanceStatus with the instances that run, without filters and pages.
fn status(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let ids = call.params.list("InstanceId");
    call.params.finish()?;
    ids.iter().try_for_each(|id| Call::check_instance_id(id))?;
    let named = by_ids(call, call.realm.instances(), &ids, ApiError::no_instances)?;
    let all = named.into_iter().map(|(_, i)| i);
    let shown = all.filter(|i| matches!(i.life, Running));
    Ok(Xml::default().list("instanceStatusSet", shown, status_of).finish())
}

fn status_of<'x>(x: &'x mut Xml, i: &Instance) -> &'x mut Xml {
    x.text("instanceId", &i.id).text("availabilityZone", &i.zone).state("instanceState", i.state());
    for (element, outcome) in [
        ("systemStatus", i.checks.system),
        ("instanceStatus", i.checks.instance),
        ("attachedEbsStatus", i.checks.attached_ebs),
    ] {
        x.nest(element, |x| {
            x.text("status", &name_of(outcome)).list("details", [outcome], |x, outcome| {
                x.text("name", "reachability").text("status", &outcome.reachability())
            })
        });
    }
    x
}

fn types(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let names = p.list("InstanceType");
    p.finish()?;
    let is_known = |name: &&&str| find_type(name).is_some();
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        // unverified wording.
        refuse!(
            "InvalidInstanceType",
            "The following supplied instance types do not exist: [{unknown}]"
        );
    }
    let shown = TYPES.iter().filter(|t| names.is_empty() || names.contains(&t.name));
    let mut x = Xml::default();
    x.list("instanceTypeSet", shown, |x, t| {
        x.text("instanceType", t.name).text("hypervisor", t.hypervisor).nest("ebsInfo", |x| {
            x.value("maximumEbsAttachments", t.maximum_attachments)
                .text("attachmentLimitType", t.limit_type)
                .value("maximumEbsCards", t.cards)
                .list("ebsCardSet", 0..t.cards, |x, n| x.value("ebsCardIndex", n))
        })
    });
    Ok(x.finish())
}

/// A change of an instance's power state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// Starts the instance.
    Start,
    /// Stops the instance; the volumes stay attached.
    Stop,
    /// Saves the instance's memory and stops the instance.
    Hibernate,
    /// Terminates the instance.
    Terminate,
}

fn stop_instances(call: &mut Call<'_>) -> ApiResult<String> {
    call.params.boolean("Force")?;
    change_all(call, Power::Stop)
}

fn terminate_instances(call: &mut Call<'_>) -> ApiResult<String> {
    change_all(call, Power::Terminate)
}

fn change_all(call: &mut Call<'_>, power: Power) -> ApiResult<String> {
    let ids = call.params.list("InstanceId");
    call.params.finish()?;
    if ids.is_empty() {
        return Err(ApiError::missing("InstanceId"));
    }
    for id in &ids {
        Call::check_instance_id(id)?;
        if !possible(call.realm.instance(id)?.life, power) {
            refuse!(
                "IncorrectInstanceState",
                "The instance '{id}' is not in a state from which it can be stopped."
            );
        }
    }
    call.permit(|c| ids.iter().map(|id| c.existing(id)).collect())?;
    call.dry_run()?;
    let mut x = Xml::default();
    let before: Vec<_> =
        ids.iter().filter_map(|id| Some((*id, call.realm.instances().get(*id)?.state()))).collect();
    for id in ids {
        change(call.realm, call.latency, id, power, call.begin, false);
        call.effects.push(id.to_owned());
    }
    x.list("instancesSet", before, |x, (id, was)| {
        let is = call.realm.instances().get(id).map_or(was, |i| i.state());
        x.text("instanceId", id).state("currentState", is).state("previousState", was)
    });
    Ok(x.finish())
}

fn possible(life: InstanceState, power: Power) -> bool {
    match power {
        Power::Start => matches!(life, Stopped | Running | Pending { .. }),
        Power::Stop | Power::Hibernate => !matches!(life, ShuttingDown { .. } | Terminated { .. }),
        Power::Terminate => true,
    }
}

/// Begins a change of an instance's power state. Returns false if the instance does not exist or
/// its state does not permit the change.
pub(crate) fn change(
    realm: &mut Realm,
    latency: &mut Latency,
    id: &str,
    power: Power,
    from: Millis,
    at_once: bool,
) -> bool {
    if !realm.instances().get(id).is_some_and(|i| possible(i.life, power)) {
        return false;
    }
    let mut until = |item| from.plus(if at_once { 0 } else { latency.sample(item) });
    let next = match power {
        Power::Start => Pending { until: until("instance_start") },
        Power::Stop | Power::Hibernate => Stopping { until: until("instance_stop") },
        Power::Terminate => ShuttingDown { until: until("instance_terminate") },
    };
    realm.update_instance(id, |i| match (power, i.life) {
        // The instance is already in the requested state or on the way to that state.
        (Power::Start, Running | Pending { .. })
        | (Power::Stop | Power::Hibernate, Stopping { .. } | Stopped)
        | (Power::Terminate, ShuttingDown { .. } | Terminated { .. }) => {}
        _ => {
            i.life = next;
            if power == Power::Start {
                // The instance starts on another host.
                i.checks = InstanceChecks::default();
            }
            if power != Power::Terminate {
                i.hibernated = power == Power::Hibernate;
            }
        }
    });
    true
}

fn zones(call: &mut Call<'_>) -> ApiResult<String> {
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
            .text("optInStatus", opted)
    });
    Ok(x.finish())
}
