//! Growing a mounted file system to the size of its disk, by ioctl.
use crate::disk::device::Device;
use crate::disk::device_number::of_filesystem;
use crate::journal;
use crate::mount::detached_mount::DetachedMount;
use crate::mount::privilege;
use crate::mount::volume_root;
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done, at_path, failed};
use crate::sys;
use ebs_csi_policy::facts::{DeviceNumber, ExtFacts};
use ebs_csi_wire::{FsType, Step};
use rustix::fd::OwnedFd;
use rustix::fs::fstat;
use rustix::io::Errno;

/// Smallest allocation group of XFS, in blocks; a smaller rest of the disk stays unused.
const SMALLEST_XFS_REST: u64 = 64;

/// Grows an XFS that is mounted and not attached yet; returns whether it had to grow. When the
/// application made the root directory private and the host does not permit to open it, the file
/// system keeps its size.
pub(super) fn detached_xfs(mount: &DetachedMount, device: &Device) -> Done<bool> {
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
pub(super) fn detached_ext(mount: &DetachedMount, device: &Device) -> bool {
    let grow = || -> Done<bool> {
        let root = mount.root().at(Step::Grow)?;
        ext(&root, device.bytes(), &superblock(device)?, false)
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
fn xfs(root: &OwnedFd, disk_bytes: u64, read_only: bool) -> Done<bool> {
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
fn ext(root: &OwnedFd, disk_bytes: u64, now: &ExtFacts, read_only: bool) -> Done<bool> {
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

fn check_writable(read_only: bool) -> Done<()> {
    if read_only { Err(failed(Step::Grow, Errno::ROFS)) } else { Ok(()) }
}

/// Opens the root of the file system that is mounted at a path, and checks that the file system is
/// on this disk.
fn root_of(context: &OperationContext, relative: &str, device: DeviceNumber) -> Done<OwnedFd> {
    let root = match volume_root::open(context.root.held(), relative) {
        Err(Errno::ACCESS) => return Err(failed(Step::Grow, Errno::ACCESS)),
        other => at_path(other)?,
    };
    if of_filesystem(&fstat(&root).at(Step::Stat)?) == device {
        Ok(root)
    } else {
        Err(ebs_csi_wire::Refusal::VolumeNotAtPath.into())
    }
}

/// Grows the file system that is mounted at a path, of whichever type. Returns whether it grew and
/// its size now, in bytes. Fails with `EROFS` if it has to grow and the mount is read-only.
pub(super) fn mounted(
    context: &OperationContext,
    relative: &str,
    device: &Device,
    read_only: bool,
) -> Done<(bool, u64)> {
    let root = root_of(context, relative, device.number())?;
    match sys::xfs_geometry(&root) {
        Ok(_) => {
            let grown = xfs(&root, device.bytes(), read_only)?;
            let (block, blocks, _) = sys::xfs_geometry(&root).at(Step::Grow)?;
            Ok((grown, blocks.saturating_mul(block.into())))
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => {
            let before = superblock(device)?;
            let grown = ext(&root, device.bytes(), &before, read_only)?;
            let after = if grown { superblock(device)? } else { before };
            Ok((grown, after.bytes))
        }
        Err(e) => Err(e).at(Step::Grow),
    }
}

/// Reads the ext superblock of the mounted file system as the kernel holds it, through the page
/// cache of the device.
fn superblock(device: &Device) -> Done<ExtFacts> {
    let mut head = vec![0_u8; 4096];
    let length = rustix::io::pread(device, &mut head, 0).at(Step::Grow)?;
    head.truncate(length);
    crate::disk::content::ext::read(&head, 0).ok_or_else(|| failed(Step::Grow, Errno::INVAL))
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
