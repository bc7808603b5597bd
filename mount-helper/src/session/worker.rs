//! A worker: carries out one operation after the other, logs each one, and lists the volumes on the
//! node.
use crate::outcome::Stop;
use crate::session::BrokerState;
use crate::session::operation_table::Work;
use crate::tool::PlaceKind;
use crate::{journal, operation};
use ebs_csi_wire::{
    Inventory, Operation, Outcome, Refusal, Reply, RunningOperation, ToolEnd, frame,
};
use std::io;

/// Largest number of volumes in one page of an inventory; a page must fit a frame with paths of any
/// length that kubelet makes.
const PAGE: usize = 16;

/// Works until the table is closed.
pub(crate) fn serve(broker: &BrokerState) {
    while let Some(work) = broker.table.take() {
        let outcome = match work.operation() {
            Operation::Inspect(request) => inspect(broker, request.first),
            operation => operation::run(&broker.context, operation),
        };
        match outcome {
            Ok(outcome) => {
                report(&work, &outcome);
                broker.table.finish(&work, &outcome);
            }
            Err(kind) => broker.table.park(&work, kind),
        }
    }
}

fn inspect(broker: &BrokerState, first: u32) -> Result<Outcome, PlaceKind> {
    let held = match operation::inventory(&broker.context) {
        Ok(held) => held,
        Err(stop) => return Stop::outcome(stop),
    };
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let operations = broker
        .table
        .running()
        .into_iter()
        .filter_map(|(operation, since)| {
            Some(RunningOperation {
                volume: operation.volume()?.clone(),
                kind: operation.properties().kind,
                running_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            })
        })
        .take(64)
        .collect();
    let mut volumes: Vec<_> = held.into_iter().skip(first).take(PAGE + 1).collect();
    let more = volumes.len() > PAGE;
    volumes.truncate(PAGE);
    let mut inventory = Inventory { volumes, operations, more };
    // With very long paths, fewer volumes fit a page.
    while !fits(&inventory) && inventory.volumes.pop().is_some() {
        inventory.more = true;
    }
    Ok(Outcome::Inventory(inventory))
}

fn fits(inventory: &Inventory) -> bool {
    let reply = Reply { id: u64::MAX, outcome: Outcome::Inventory(inventory.clone()) };
    reply.encode().len() <= frame::MAX_FRAME
}

/// Logs one line for each operation. The peer chose nothing in the line but the volume id, whose
/// form is checked.
fn report(work: &Work, outcome: &Outcome) {
    let volume = work.operation().volume().map_or("", |volume| volume.as_str());
    let properties = work.operation().properties();
    let took = work.since().elapsed().as_micros().to_string();
    let mut fields =
        vec![("operation", properties.name), ("volume", volume), ("took_us", took.as_str())];
    let (errno, code, seen, owner);
    match outcome {
        // A promise is asked for twice a second until nothing holds the volume.
        Outcome::Refused(refused)
            if !properties.success_is_logged && refused.reason == Refusal::StillHeld => {}
        Outcome::Refused(refused) => {
            fields.extend([("outcome", "refused"), ("reason", refused.reason.as_str())]);
            if let Some(what) = &refused.seen {
                seen = what.to_string();
                fields.push(("seen", seen.as_str()));
            }
            journal::warn("operation", &fields);
        }
        Outcome::Failed(failed) => {
            fields.extend([("outcome", "failed"), ("step", failed.step.as_str())]);
            if let Some(number) = failed.errno {
                errno = io::Error::from_raw_os_error(number.get()).to_string();
                fields.push(("errno", errno.as_str()));
            }
            if let Some(node) = failed.node {
                owner = node.to_string();
                fields.push(("node", owner.as_str()));
            }
            match failed.tool {
                Some(ToolEnd::Exited(status)) => {
                    code = status.to_string();
                    fields.push(("tool_exit", code.as_str()));
                }
                Some(ToolEnd::Signalled(signal)) => {
                    code = signal.to_string();
                    fields.push(("tool_signal", code.as_str()));
                }
                _ => {}
            }
            journal::error("operation", &fields);
        }
        Outcome::Staged(staged) => {
            let yes = |flag: bool| if flag { "yes" } else { "no" };
            fields.extend([
                ("outcome", "done"),
                ("already", yes(staged.already)),
                ("formatted", yes(staged.formatted)),
                ("checked", yes(staged.checked)),
                ("repaired", yes(staged.repaired)),
                ("grown", yes(staged.grown)),
            ]);
            journal::info("operation", &fields);
        }
        _ if !properties.success_is_logged => {}
        _ => {
            fields.push(("outcome", "done"));
            journal::info("operation", &fields);
        }
    }
}
