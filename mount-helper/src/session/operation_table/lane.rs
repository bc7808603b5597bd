//! What an operation has to wait for.
use crate::operation::{self, Class};
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

impl Lane {
    /// Returns the lane of an operation; None for a request that is no work. `number` distinguishes
    /// inventories.
    pub(super) fn of(operation: &Operation, number: u64) -> Option<Self> {
        if matches!(operation, Operation::Inspect(_)) {
            return Some(Self::Inspect(number));
        }
        let volume = operation.volume()?.clone();
        Some(match operation::properties(operation).class {
            Class::Look => Self::Look(volume),
            _ => Self::Change(volume),
        })
    }
}
