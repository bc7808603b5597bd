//! StopInstances, TerminateInstances, and the same changes by the control API.

use crate::actions::{ActionRow, Call};
use crate::state::Realm;
use crate::state::resources::{InstanceChecks, InstanceState as State};
use crate::time::{Latency, Millis};
use crate::wire::{ApiError, ApiResult, Xml, refuse};

pub(crate) const ROWS: &[ActionRow] = &[
    ("StopInstances", stop_instances, "InstanceId.1={instance}"),
    ("TerminateInstances", terminate_instances, "InstanceId.1={instance}"),
];

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
    all(call, Power::Stop)
}

fn terminate_instances(call: &mut Call<'_>) -> ApiResult<String> {
    all(call, Power::Terminate)
}

fn all(call: &mut Call<'_>, power: Power) -> ApiResult<String> {
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
        power_of(call.realm, call.latency, id, power, call.begin, false);
        call.effects.push(id.to_owned());
    }
    x.list("instancesSet", before, |x, (id, was)| {
        let is = call.realm.instances().get(id).map_or(was, |i| i.state());
        x.text("instanceId", id);
        for (name, (code, state)) in [("currentState", is), ("previousState", was)] {
            x.nest(name, |x| {
                x.value("code", code).text("name", state);
            });
        }
    });
    Ok(x.finish())
}

/// Begins a change of an instance's power state. Returns false if the instance does not exist or
/// its state does not permit the change.
pub(crate) fn power(
    realm: &mut Realm,
    latency: &mut Latency,
    instance: &str,
    power: Power,
    now: Millis,
    at_once: bool,
) -> bool {
    let is_possible = realm.instances().get(instance).is_some_and(|i| possible(i.life, power));
    if is_possible {
        power_of(realm, latency, instance, power, now, at_once);
    }
    is_possible
}

fn possible(life: State, power: Power) -> bool {
    match power {
        Power::Start => matches!(life, State::Stopped | State::Running | State::Pending { .. }),
        Power::Stop | Power::Hibernate => {
            !matches!(life, State::ShuttingDown { .. } | State::Terminated { .. })
        }
        Power::Terminate => true,
    }
}

fn power_of(
    realm: &mut Realm,
    latency: &mut Latency,
    id: &str,
    power: Power,
    from: Millis,
    at_once: bool,
) {
    let mut until = |item| from.plus(if at_once { 0 } else { latency.sample(item) });
    let next = match power {
        Power::Start => State::Pending { until: until("instance_start") },
        Power::Stop | Power::Hibernate => State::Stopping { until: until("instance_stop") },
        Power::Terminate => State::ShuttingDown { until: until("instance_terminate") },
    };
    realm.update_instance(id, |i| match (power, i.life) {
        // The instance is already in the requested state or on the way to that state.
        (Power::Start, State::Running | State::Pending { .. })
        | (Power::Stop | Power::Hibernate, State::Stopping { .. } | State::Stopped)
        | (Power::Terminate, State::ShuttingDown { .. } | State::Terminated { .. }) => {}
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
}
