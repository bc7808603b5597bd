//! What an operation has to wait for, and which workers can carry it out.
use ebs_csi_wire::{Operation, VolumeId};

/// Operations with the same lane run one after the other: changes of one volume do, while looks do
/// not wait for changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Change(VolumeId),
    Look(VolumeId),
    /// Each inventory has a number of its own, so that nobody gets one that began before the
    /// request.
    Inspect(u64),
}

/// Operations that may be slow for the same reason. Each class has workers of its own, so that a
/// quick operation never waits for a slow one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Class {
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
    pub(super) const ALL: [Self; 5] = [
        Self::Mount,
        Self::Look,
        Self::Inspect,
        Self::Release,
        Self::Disk,
    ];

    /// Returns the class of an operation.
    pub(super) const fn of(operation: &Operation) -> Self {
        match operation {
            Operation::PublishFilesystem(_) | Operation::Unpublish(_) => Self::Mount,
            Operation::Stats(_) | Operation::NvmeStatistics(_) => Self::Look,
            Operation::Hello(_) | Operation::Inspect(_) => Self::Inspect,
            Operation::Unstage(_) => Self::Release,
            Operation::Stage(_) | Operation::PublishBlock(_) | Operation::Expand(_) => Self::Disk,
        }
    }

    /// Returns the number of workers of the class.
    pub(super) const fn workers(self) -> usize {
        match self {
            Self::Mount => 8,
            Self::Look | Self::Release => 6,
            Self::Inspect => 2,
            // Workers for the operations that have a tool, and six more for those that have none.
            Self::Disk => crate::tool::tool_places::TOOLS + 6,
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Mount => 0,
            Self::Look => 1,
            Self::Inspect => 2,
            Self::Release => 3,
            Self::Disk => 4,
        }
    }
}

impl Lane {
    /// Returns the lane of an operation; None for a request that is no work. `number` distinguishes
    /// inventories.
    pub(super) fn of(operation: &Operation, number: u64) -> Option<Self> {
        if matches!(operation, Operation::Inspect(_)) {
            return Some(Self::Inspect(number));
        }
        let volume = operation.volume()?.clone();
        Some(match Class::of(operation) {
            Class::Look => Self::Look(volume),
            _ => Self::Change(volume),
        })
    }
}
