//! What an operation has to wait for, and which workers it may have.
use ebs_csi_wire::{Operation, VolumeId};

/// Changes of one volume come one after the other; looks do not wait for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Change(VolumeId),
    Look(VolumeId),
    /// Nobody is told an inventory that began before it was asked for.
    Inspect(u64),
}

/// Operations that may be slow for one reason. Each class has workers of its own, so that what is
/// quick never waits for what is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// Mounts are copied and taken away, and no disk is written.
    Mount,
    /// Statistics: a file system that hangs keeps its worker.
    Look,
    /// A file system is written back: a disk that hangs keeps its worker.
    Release,
    /// A disk is waited for, read, mounted and worked on by tools.
    Disk,
    /// What is mounted.
    Inspect,
}

impl Class {
    /// Those that wait the least come first.
    pub(super) const ALL: [Self; 5] = [
        Self::Mount,
        Self::Look,
        Self::Inspect,
        Self::Release,
        Self::Disk,
    ];

    /// Where an operation belongs.
    pub(super) const fn of(operation: &Operation) -> Self {
        match operation {
            Operation::PublishFilesystem(_) | Operation::Unpublish(_) => Self::Mount,
            Operation::Stats(_) | Operation::NvmeStatistics(_) => Self::Look,
            Operation::Hello(_) | Operation::Inspect(_) => Self::Inspect,
            Operation::Unstage(_) => Self::Release,
            Operation::Stage(_) | Operation::PublishBlock(_) | Operation::Expand(_) => Self::Disk,
        }
    }

    /// The number of its workers.
    pub(super) const fn workers(self) -> usize {
        match self {
            Self::Mount => 8,
            Self::Look | Self::Release => 6,
            Self::Inspect => 2,
            // Those that have a tool, and as many again and more that have none.
            Self::Disk => crate::tool_places::TOOLS + 6,
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
    /// None for what is no work. `number` tells one inventory from another.
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
