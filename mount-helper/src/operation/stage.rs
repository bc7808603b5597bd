//! Stage: finds the volume's disk, makes it fit to be mounted, and mounts it at the staging path.
//! Each step is a type that only the step before it makes.
mod beside_copy;
mod evidence;
mod examine;
mod filesystem_tools;
mod found_disk;
mod prepare;

use crate::operation::context::OperationContext;
use crate::outcome::Done;
use ebs_csi_wire::{Stage, Staged};
use found_disk::{FoundDisk, Guarded};

/// Carries out the request.
pub(super) fn stage(context: &OperationContext, request: &Stage) -> Done<Staged> {
    match FoundDisk::find(context, request)?.guard()? {
        Guarded::Mounted(disk) => disk.restage(),
        Guarded::Unused(disk) => disk.prepare()?.mount()?.attach(),
    }
}
