//! Expand, and every other growth of a mounted file system to the size of its disk, by ioctl.
use crate::disk::device::{Access, Device, DiskRoots};
use crate::disk::device_number::of_filesystem;
use crate::mount::detached_mount::DetachedMount;
use crate::mount::privilege;
use crate::operation::OperationContext;
use crate::outcome::{At, Result, at_path, failed};
use crate::{fault_point, journal, sys};
use ebs_csi_policy::facts::{DeviceNumber, ExtFacts};
use ebs_csi_policy::judge::{self, Shown};
use ebs_csi_wire::{Expand, Expanded, FsType, Observation, Refusal, Refused, Step};
use rustix::fd::OwnedFd;
use rustix::fs::fstat;
use rustix::io::Errno;

/// Smallest allocation group of XFS, in blocks; a smaller rest of the disk stays unused.
const SMALLEST_XFS_REST: u64 = 64;

/// Grows the mounted file system of a volume to the current size of its disk.
pub(super) fn expand(context: &OperationContext, request: &Expand) -> Result<Expanded> {
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
            let (_, bytes) = mounted(context, path, &device, read_only)?;
            fault_point::reached("expand-grown");
            bytes
        }
    };
    context.verify(&device)?;
    Ok(Expanded { device_bytes: device.bytes(), filesystem_bytes })
}

/// Returns a place where the file system of the disk is mounted writable. The kernel grows a file
/// system only through such a mount.
fn writable_mount(context: &OperationContext, device: &Device) -> Result<Option<String>> {
    let table = context.mount_table.read().at(Step::ReadMountTable)?;
    let mounts = context.root.volume_mounts(&table, |mount| mount.device == device.number());
    Ok(mounts.into_iter().filter(|mount| !mount.read_only).find_map(|mount| mount.path))
}

/// Grows an XFS that is mounted and not attached yet; returns whether it had to grow. When the
/// application made the root directory private and the host does not permit to open it, the file
/// system keeps its size.
pub(super) fn detached_xfs(mount: &DetachedMount, device: &Device) -> Result<bool> {
    match mount.root() {
        Err(Errno::ACCESS) => {
            log_not_grown(FsType::Xfs, "the root directory is closed to others");
            Ok(false)
        }
        root => xfs(&root.at(Step::Grow)?, device.bytes(), false),
    }
}

/// Grows an ext file system that is mounted and not attached yet; returns false when the kernel
/// cannot.
pub(super) fn detached_ext(mount: &DetachedMount, (disks, device): (&DiskRoots, &Device)) -> bool {
    let grow = || -> Result<bool> {
        let root = mount.root().at(Step::Grow)?;
        ext(&root, device.bytes(), &superblock(disks, device)?, false)
    };
    match grow() {
        Ok(_) => true,
        Err(stop) => {
            log_not_grown(FsType::Ext4, &format!("{stop:?}"));
            false
        }
    }
}

/// Logs that a file system stays smaller than its disk.
pub(super) fn log_not_grown(fs: FsType, why: &str) {
    journal::warn("not-grown", &[("fs", fs.as_str()), ("why", why)]);
}

/// Grows a mounted XFS; returns whether it had to grow. Fails with `EROFS` if it has to and is
/// read-only.
fn xfs(root: &OwnedFd, disk_bytes: u64, read_only: bool) -> Result<bool> {
    let (block, blocks, inode_percent) = sys::xfs_geometry(root).at(Step::Grow)?;
    if block == 0 {
        return Err(failed(Step::Grow, Errno::INVAL));
    }
    let wanted = disk_bytes / u64::from(block);
    if wanted < blocks.saturating_add(SMALLEST_XFS_REST) {
        return Ok(false);
    }
    check_writable(read_only)?;
    sys::xfs_grow(root, wanted, inode_percent).at(Step::Grow)?;
    Ok(true)
}

/// Does the same as [`xfs`] for a mounted ext3 or ext4.
fn ext(root: &OwnedFd, disk_bytes: u64, now: &ExtFacts, read_only: bool) -> Result<bool> {
    let room = disk_bytes.saturating_sub(now.bytes);
    // The kernel does not use a rest that is smaller than a block group.
    let group = now.group_blocks.saturating_mul(now.block_bytes);
    if now.block_bytes == 0 || room == 0 || room < group {
        return Ok(false);
    }
    check_writable(read_only)?;
    let wanted = disk_bytes / now.block_bytes;
    privilege::with_resource(|| sys::ext4_grow(root, wanted)).at(Step::Grow)?;
    Ok(true)
}

fn check_writable(read_only: bool) -> Result<()> {
    if read_only { Err(failed(Step::Grow, Errno::ROFS)) } else { Ok(()) }
}

/// Opens the root of the file system that is mounted at a path, and checks that the file system is
/// on this disk.
fn root_of(context: &OperationContext, relative: &str, device: DeviceNumber) -> Result<OwnedFd> {
    let root = match privilege::open_volume_root(context.root.held(), relative) {
        Err(Errno::ACCESS) => return Err(failed(Step::Grow, Errno::ACCESS)),
        other => at_path(other)?,
    };
    if of_filesystem(&fstat(&root).at(Step::Stat)?) == device {
        Ok(root)
    } else {
        Err(Refusal::VolumeNotAtPath.into())
    }
}

/// Grows the file system that is mounted at a path, of whichever type. Returns whether it grew and
/// its size now, in bytes. Fails with `EROFS` if it has to grow and the mount is read-only.
pub(super) fn mounted(
    context: &OperationContext,
    relative: &str,
    device: &Device,
    read_only: bool,
) -> Result<(bool, u64)> {
    let root = root_of(context, relative, device.number())?;
    match sys::xfs_geometry(&root) {
        Ok(_) => {
            let grown = xfs(&root, device.bytes(), read_only)?;
            let (block, blocks, _) = sys::xfs_geometry(&root).at(Step::Grow)?;
            Ok((grown, blocks.saturating_mul(block.into())))
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => {
            let before = superblock(&context.disks, device)?;
            let grown = ext(&root, device.bytes(), &before, read_only)?;
            let after = if grown { superblock(&context.disks, device)? } else { before };
            Ok((grown, after.bytes))
        }
        Err(e) => Err(e).at(Step::Grow),
    }
}

/// Returns the ext superblock of the mounted file system as the kernel holds it, in the page cache
/// of the device.
fn superblock(disks: &DiskRoots, device: &Device) -> Result<ExtFacts> {
    let facts = disks.first_facts(device).at(Step::Grow)?;
    facts.ext.ok_or_else(|| failed(Step::Grow, Errno::INVAL))
}

/// Grows a file system that is mounted already, on a repeated stage. A failure to grow does not
/// fail the stage, which has nothing left to do; NodeExpandVolume reports the reason.
pub(super) fn after_restage(
    context: &OperationContext,
    relative: &str,
    fs: FsType,
    device: &Device,
) -> bool {
    match mounted(context, relative, device, false) {
        Ok((grown, _)) => grown,
        Err(stop) => {
            journal::warn(
                "restage",
                &[("step", "grow"), ("fs", fs.as_str()), ("why", &format!("{stop:?}"))],
            );
            false
        }
    }
}
