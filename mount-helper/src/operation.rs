//! The operations behind the requests: each gathers the facts itself, has the policy judge them,
//! and acts only on what the policy allowed.
pub(crate) mod context;
mod copied_mount;
mod expand;
mod grow;
mod holders;
mod inspect;
mod nvme;
pub(crate) mod path_reservation;
mod publish;
mod raw_disk;
mod stage;
mod volume_stats;
mod withdraw;
mod xen_disk;

use crate::operation::context::OperationContext;
use crate::outcome::{Done, Stop};
use ebs_csi_policy::place;
use ebs_csi_wire::{Operation, OperationKind, Outcome, Refusal};

pub(crate) use inspect::inventory;
pub(crate) use raw_disk::take_over;

/// Carries out one operation on a volume. Returns None when the operation needs a tool, has done
/// nothing yet, and has to wait until tools can run.
pub(crate) fn run(context: &OperationContext, operation: &Operation) -> Option<Outcome> {
    if let Err(reason) = place::check(operation, context.root.path(), context.rules.places()) {
        return Some(reason.into());
    }
    let Ok(_reservation) = context.path_reservations.enter(operation) else {
        return Some(Refusal::Busy.into());
    };
    let outcome: Done<Outcome> = match operation {
        Operation::Stage(asked) => stage::stage(context, asked).map(Outcome::Staged),
        Operation::Unstage(asked) => withdraw::unstage(context, asked).map(Outcome::Done),
        Operation::PublishFilesystem(asked) => {
            publish::filesystem(context, asked).map(Outcome::Done)
        }
        Operation::PublishBlock(asked) => publish::block(context, asked).map(Outcome::Done),
        Operation::Unpublish(asked) => withdraw::unpublish(context, asked).map(Outcome::Done),
        Operation::Expand(asked) => expand::expand(context, asked).map(Outcome::Expanded),
        Operation::Stats(asked) => volume_stats::stats(context, asked).map(Outcome::Usage),
        Operation::NvmeStatistics(asked) => nvme::statistics(context, asked).map(Outcome::LogPage),
        Operation::Hello(_) | Operation::Inspect(_) => Err(Refusal::Unsupported.into()),
    };
    outcome.map_or_else(Stop::outcome, Some)
}

/// Returns the kind under which a running operation is counted.
pub(crate) fn kind(operation: &Operation) -> OperationKind {
    match operation {
        Operation::Stage(_) => OperationKind::Stage,
        Operation::Unstage(_) => OperationKind::Unstage,
        Operation::PublishFilesystem(_) | Operation::PublishBlock(_) => OperationKind::Publish,
        Operation::Unpublish(_) => OperationKind::Unpublish,
        Operation::Expand(_) => OperationKind::Expand,
        Operation::Stats(_)
        | Operation::NvmeStatistics(_)
        | Operation::Hello(_)
        | Operation::Inspect(_) => OperationKind::Stats,
    }
}
