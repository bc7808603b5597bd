//! The machine's own report of its identity.

use super::{Check, Host};
use crate::facts::dmi;

pub(super) fn checks(host: &Host) -> [Check; 2] {
    let directory = host.path(dmi::DIRECTORY);
    let next =
        "let the instance metadata service or a node facts file say it (deploy/docs/node-agent.md)";
    let row = |what, known: Option<String>| match known {
        Some(known) => Check::ok(what, known),
        None => Check::warn(what, "DMI does not say it", next),
    };
    [
        row("instance id", dmi::instance(&directory).map(|id| id.as_str().to_owned())),
        row("instance type", dmi::instance_type(&directory)),
    ]
}
