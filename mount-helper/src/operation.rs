//! The operations behind the requests: each gathers the facts itself, has the policy judge them,
//! and acts only on what the policy allowed.
pub(crate) mod context;
mod copied_mount;
mod expand;
mod freeze;
mod grow;
mod holders;
mod inspect;
mod nvme;
mod publish;
mod raw_disk;
mod stage;
mod volume_disk;
mod volume_stats;
mod withdraw;

use crate::operation::context::OperationContext;
use crate::outcome::{Done, Stop};
use crate::tool::tool_places::PlaceKind;
use ebs_csi_policy::place;
use ebs_csi_wire::{HelperRequest, Operation, Outcome, Refusal};

pub(crate) use inspect::inventory;
pub(crate) use raw_disk::record_earlier_publications;

/// Carries out one operation on a volume. An error says that the operation needs a tool, has done
/// nothing yet, and has to wait until there is a place of this kind.
pub(crate) fn run(context: &OperationContext, operation: &Operation) -> Result<Outcome, PlaceKind> {
    if let Err(reason) = place::check(operation, context.root.path(), context.rules.places()) {
        return Ok(reason.into());
    }
    let Some(_reservation) = context.path_reservations.enter(operation.changed_path()) else {
        return Ok(Refusal::Busy.into());
    };
    let outcome = match operation {
        Operation::Stage(request) => answer(context, request, stage::stage),
        Operation::Unstage(request) => answer(context, request, withdraw::unstage),
        Operation::PublishFilesystem(request) => answer(context, request, publish::filesystem),
        Operation::PublishBlock(request) => answer(context, request, publish::block),
        Operation::Unpublish(request) => answer(context, request, withdraw::unpublish),
        Operation::Expand(request) => answer(context, request, expand::expand),
        Operation::Stats(request) => answer(context, request, volume_stats::stats),
        Operation::NvmeStatistics(request) => answer(context, request, nvme::statistics),
        Operation::Hello(_) | Operation::Inspect(_) => Err(Refusal::Unsupported.into()),
    };
    outcome.or_else(Stop::outcome)
}

fn answer<R: HelperRequest>(
    context: &OperationContext,
    request: &R,
    carry_out: fn(&OperationContext, &R) -> Done<R::Answer>,
) -> Done<Outcome> {
    carry_out(context, request).map(Into::into)
}
