//! Held and Promise: what on this node holds a volume's disk, and the promise that nothing of this
//! driver will. Both run while no other operation on the volume does.
use super::disk_use;
use crate::disk::device::{Access, Device, DeviceError};
use crate::disk::{device_number, promises};
use crate::journal;
use crate::mount::mount_table::Mount;
use crate::operation::OperationContext;
use crate::outcome::{At, Result};
use ebs_csi_wire::{Done, Held, Holder, Holding, Promise, Refusal, Step, VolumeId};

/// Answers from the kernel what holds the volume. Reads only.
pub(super) fn held(context: &OperationContext, request: &Held) -> Result<Holding> {
    let (holder, _) = look(context, &request.volume)?;
    let promised =
        context.promises.is_shown(promises::now(), &request.volume, request.attached_at.as_ref());
    Ok(Holding { holder, question: request.question, promised })
}

/// Records the promise for a volume that nothing holds.
pub(super) fn promise(context: &OperationContext, request: &Promise) -> Result<Done> {
    let (holder, sequence) = look(context, &request.volume)?;
    if !matches!(holder, Holder::Nothing | Holder::NoDisk) {
        return Err(Refusal::StillHeld.into());
    }
    let made =
        context.promises.make(promises::now(), &request.volume, &request.attached_at, sequence);
    let is_new = made.at(Step::Sync)?;
    if is_new {
        let facts = [
            ("volume", request.volume.as_str()),
            ("attached", request.attached_at.as_str()),
            ("diskseq", &sequence.to_string()),
        ];
        journal::info("promised", &facts);
    }
    Ok(Done { already: !is_new, copied: false })
}

/// Returns what holds the volume's disk, and the sequence number of its attachment (0 without a
/// disk).
fn look(context: &OperationContext, volume: &VolumeId) -> Result<(Holder, u64)> {
    let device = match context.find_known(volume, None, Access::ReadOnly) {
        Err(DeviceError::Absent) => {
            let table = context.mount_table.read().at(Step::ReadMountTable)?;
            let holder =
                if is_gone_but_mounted(context, &table) { Holder::Mount } else { Holder::NoDisk };
            return Ok((holder, 0));
        }
        found => found.at(Step::FindDevice)?,
    };
    let table = context.mount_table.read().at(Step::ReadMountTable)?;
    let holder = holder(context, &device, &table)?;
    // The answer counts only if it is still about this disk.
    context.verify(&device)?;
    Ok((holder, device.sequence()))
}

/// Returns whether a file system is mounted whose disk has left the node: nothing tells any more
/// whose it was.
fn is_gone_but_mounted(context: &OperationContext, table: &[Mount]) -> bool {
    table.iter().any(|mount| {
        let is_own = context
            .root
            .relative(mount)
            .is_some_and(|relative| disk_use::is_own_place(context, &relative));
        is_own
            && mount.source.starts_with("/dev/")
            && !device_number::is_anonymous(mount.device)
            && !context.disks.exists(mount.device)
    })
}

fn holder(context: &OperationContext, device: &Device, table: &[Mount]) -> Result<Holder> {
    let mut mounts = table.iter().filter(|mount| disk_use::overlaps(context, device, mount));
    if let Some(mount) = mounts.next() {
        let relative = context.root.relative(mount);
        let is_own = relative.is_some_and(|relative| disk_use::is_own_place(context, &relative));
        return Ok(if is_own { Holder::Mount } else { Holder::MountElsewhere });
    }
    if !disk_use::publications_in(context, device, table).is_empty() {
        return Ok(Holder::Publication);
    }
    let parts = device.parts(&context.disks).at(Step::FindDevice)?;
    for part in &parts {
        if context.disks.holder_of(part.number).at(Step::FindDevice)?.is_some() {
            return Ok(Holder::BlockDevice);
        }
    }
    if context.disks.loop_device_on(&parts).at(Step::FindDevice)?.is_some() {
        return Ok(Holder::BlockDevice);
    }
    let is_released = || context.released_beside_copy.has(device.attachment());
    match device.claim(&context.disks, Access::ReadOnly) {
        Ok(_) => Ok(Holder::Nothing),
        // Files that are open in another mount namespace keep a file system that an unstage has
        // made read-only.
        Err(DeviceError::Os(rustix::io::Errno::BUSY)) if is_released() => Ok(Holder::Nothing),
        Err(DeviceError::Os(rustix::io::Errno::BUSY)) => Ok(Holder::Claim),
        Err(error) => Err(error).at(Step::ClaimDevice),
    }
}
