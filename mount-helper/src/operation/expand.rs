//! Expand: grows the mounted file system of a volume to the current size of its disk.
use super::grow;
use crate::disk::device::{Access, Device};
use crate::fault_point;
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done};
use ebs_csi_policy::judge::{self, Shown};
use ebs_csi_wire::{Expand, Expanded, Observation, Refused, Step};

/// Carries out the request.
pub(super) fn expand(context: &OperationContext, request: &Expand) -> Done<Expanded> {
    let relative = context.relative(&request.path)?;
    let place = context.path_facts(relative)?;
    let owner = context.owner(&place, &request.volume)?;
    let shown = judge::shown(&place, owner)?.into_act();
    let device = context
        .find_known(&request.volume, context.partition_at(&place), Access::ReadOnly)
        .at(Step::FindDevice)?;
    // A partition keeps its size; the request is about the size of the volume.
    judge::expand(request, device.whole_bytes())
        .map_err(|reason| Refused::because(reason, Observation::DiskBytes(device.whole_bytes())))?;
    let filesystem_bytes = match shown {
        Shown::Block => 0,
        Shown::Filesystem { read_only } => {
            let elsewhere = if read_only { writable_mount(context, &device)? } else { None };
            let path = elsewhere.as_deref().unwrap_or(relative);
            let read_only = read_only && elsewhere.is_none();
            let (_, bytes) = grow::mounted(context, path, &device, read_only)?;
            fault_point::reached("expand-grown");
            bytes
        }
    };
    context.verify(&device)?;
    Ok(Expanded { device_bytes: device.bytes(), filesystem_bytes })
}

/// Returns a place where the file system of the disk is mounted writable. The kernel grows a file
/// system only through such a mount.
fn writable_mount(context: &OperationContext, device: &Device) -> Done<Option<String>> {
    let table = context.mount_table.read().at(Step::ReadMountTable)?;
    let mounts = context.root.volume_mounts(&table, |mount| mount.device == device.number());
    Ok(mounts.into_iter().filter(|mount| !mount.read_only).find_map(|mount| mount.path))
}
