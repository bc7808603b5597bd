//! The operations behind the requests: each gathers the facts itself, has the policy judge them,
//! and acts only on what the policy allowed.
mod by_name;
mod copied;
mod examine;
mod expand;
mod grow;
mod holders;
mod inspect;
mod nvme;
mod prepare;
mod publish;
mod raw;
mod stage;
mod stats;
mod withdraw;

use crate::outcome::{Done, Stop};
use crate::world::World;
use ebs_csi_policy::place;
use ebs_csi_wire::{Operation, OperationKind, Outcome, Refusal};

pub use copied::CopiedMounts;
pub use inspect::inventory;
pub use raw::take_over;

/// Carries out one operation on a volume. Returns None when the operation needs a tool, has done
/// nothing yet, and has to wait until tools can run.
pub fn run(world: &World, operation: &Operation) -> Option<Outcome> {
    if let Err(reason) = place::check(operation, world.root.path(), world.rules.places()) {
        return Some(reason.into());
    }
    let Ok(_lane) = world.lanes.enter(operation) else {
        return Some(Refusal::Busy.into());
    };
    let outcome: Done<Outcome> = match operation {
        Operation::Stage(asked) => stage::stage(world, asked).map(Outcome::Staged),
        Operation::Unstage(asked) => withdraw::unstage(world, asked).map(Outcome::Done),
        Operation::PublishFilesystem(asked) => publish::filesystem(world, asked).map(Outcome::Done),
        Operation::PublishBlock(asked) => publish::block(world, asked).map(Outcome::Done),
        Operation::Unpublish(asked) => withdraw::unpublish(world, asked).map(Outcome::Done),
        Operation::Expand(asked) => expand::expand(world, asked).map(Outcome::Expanded),
        Operation::Stats(asked) => stats::stats(world, asked).map(Outcome::Usage),
        Operation::NvmeStatistics(asked) => nvme::statistics(world, asked).map(Outcome::LogPage),
        Operation::Hello(_) | Operation::Inspect(_) => Err(Refusal::Unsupported.into()),
    };
    outcome.map_or_else(Stop::outcome, Some)
}

/// Returns the kind under which a running operation is counted.
pub fn kind(operation: &Operation) -> OperationKind {
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
