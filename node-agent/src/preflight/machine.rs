//! The machine's own report of its identity.

use super::{Check, Host};
use crate::facts::dmi::{self, Machine};

pub(super) fn checks(host: &Host) -> [Check; 2] {
    let machine = Machine::read(&host.path(dmi::DIRECTORY));
    let next =
        "let the instance metadata service or a node facts file say it (deploy/docs/node-agent.md)";
    let row = |what, known: Option<String>| match known {
        Some(known) => Check::ok(what, known),
        None => Check::warn(what, "DMI does not say it", next),
    };
    [
        row("instance id", machine.instance.map(|id| id.to_string())),
        row("instance type", machine.instance_type),
    ]
}
