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
pub(crate) mod path_reservation;
mod publish;
mod raw_disk;
mod stage;
mod volume_stats;
mod withdraw;
mod xen_disk;

use crate::operation::context::OperationContext;
use crate::outcome::{Done, Stop};
use crate::tool::tool_places::{PlaceKind, TOOLS};
use ebs_csi_policy::place;
use ebs_csi_wire::{KubeletPath, Operation, OperationKind, Outcome, Refusal};

pub(crate) use inspect::inventory;
pub(crate) use raw_disk::record_earlier_publications;

/// Carries out one operation on a volume. An error says that the operation needs a tool, has done
/// nothing yet, and has to wait until there is a place of this kind.
pub(crate) fn run(context: &OperationContext, operation: &Operation) -> Result<Outcome, PlaceKind> {
    if let Err(reason) = place::check(operation, context.root.path(), context.rules.places()) {
        return Ok(reason.into());
    }
    let Some(_reservation) = context.path_reservations.enter(properties(operation).changes) else {
        return Ok(Refusal::Busy.into());
    };
    let outcome: Done<Outcome> = match operation {
        Operation::Stage(request) => stage::stage(context, request).map(Outcome::Staged),
        Operation::Unstage(request) => withdraw::unstage(context, request).map(Outcome::Done),
        Operation::PublishFilesystem(request) => {
            publish::filesystem(context, request).map(Outcome::Done)
        }
        Operation::PublishBlock(request) => publish::block(context, request).map(Outcome::Done),
        Operation::Unpublish(request) => withdraw::unpublish(context, request).map(Outcome::Done),
        Operation::Expand(request) => expand::expand(context, request).map(Outcome::Expanded),
        Operation::Stats(request) => volume_stats::stats(context, request).map(Outcome::Usage),
        Operation::NvmeStatistics(request) => {
            nvme::statistics(context, request).map(Outcome::LogPage)
        }
        Operation::Hello(_) | Operation::Inspect(_) => Err(Refusal::Unsupported.into()),
    };
    outcome.or_else(Stop::outcome)
}

/// Operations that may be slow for the same reason. Each class has workers of its own, so that a
/// quick operation never waits for a slow one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Copies or removes mounts, and writes to no disk.
    Mount,
    /// Reads statistics. A file system that hangs blocks its worker.
    Look,
    /// Writes back a file system. A disk that hangs blocks its worker.
    Release,
    /// Waits for a disk, reads it, mounts it and runs tools on it.
    Disk,
    /// Lists what is mounted.
    Inspect,
}

impl Class {
    /// All classes, those that block the least first.
    pub(crate) const ALL: [Self; 5] =
        [Self::Mount, Self::Look, Self::Inspect, Self::Release, Self::Disk];

    /// Returns the number of workers of the class.
    pub(crate) const fn workers(self) -> usize {
        match self {
            Self::Mount => 8,
            Self::Look | Self::Release => 6,
            Self::Inspect => 2,
            // Workers for the operations that have a tool, and six more for those that have none.
            Self::Disk => TOOLS + 6,
        }
    }

    /// Returns the place of the class in an array with one element for each class.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// How the broker treats an operation, apart from carrying it out.
#[derive(Debug)]
pub(crate) struct Properties<'o> {
    /// The workers that carry it out.
    pub(crate) class: Class,
    /// The kind under which it is counted while it runs.
    pub(crate) kind: OperationKind,
    /// The place at which it attaches or removes something.
    pub(crate) changes: Option<&'o KubeletPath>,
    /// Whether it may take minutes: it formats, checks or grows a large volume.
    pub(crate) long: bool,
    /// Whether it comes continuously and changes nothing, so that a success is not logged.
    pub(crate) frequent: bool,
}

/// Returns the properties of an operation.
pub(crate) fn properties(operation: &Operation) -> Properties<'_> {
    let change = |class, kind, place| Properties {
        class,
        kind,
        changes: Some(place),
        long: false,
        frequent: false,
    };
    let look = |class| Properties {
        class,
        kind: OperationKind::Stats,
        changes: None,
        long: false,
        frequent: true,
    };
    match operation {
        Operation::Stage(request) => {
            Properties { long: true, ..change(Class::Disk, OperationKind::Stage, &request.staging) }
        }
        Operation::Unstage(request) => {
            change(Class::Release, OperationKind::Unstage, &request.staging)
        }
        Operation::PublishFilesystem(request) => {
            change(Class::Mount, OperationKind::Publish, &request.target)
        }
        Operation::PublishBlock(request) => {
            change(Class::Disk, OperationKind::Publish, &request.target)
        }
        Operation::Unpublish(request) => {
            change(Class::Mount, OperationKind::Unpublish, &request.target)
        }
        Operation::Expand(_) => Properties {
            kind: OperationKind::Expand,
            long: true,
            frequent: false,
            ..look(Class::Disk)
        },
        Operation::Stats(_) | Operation::NvmeStatistics(_) => look(Class::Look),
        Operation::Hello(_) | Operation::Inspect(_) => look(Class::Inspect),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_wire::{Stats, Unpublish, VolumeId};

    #[test]
    fn unpublish_changes_its_target_stats_changes_nothing() {
        let volume = VolumeId::parse("vol-00000000000000001").expect("id");
        let path = KubeletPath::parse("/k/pods/a").expect("path");
        let unpublish =
            Operation::Unpublish(Unpublish { volume: volume.clone(), target: path.clone() });
        assert_eq!(properties(&unpublish).changes, Some(&path));
        let stats = Operation::Stats(Stats { volume, path });
        assert_eq!(properties(&stats).changes, None);
    }
}
