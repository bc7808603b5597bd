//! Growing a mounted file system to the size of its disk, by ioctl.
use crate::device::Device;
use crate::journal;
use crate::mounts::Detached;
use crate::outcome::{At, Done, at_path, failed};
use crate::privilege;
use crate::sys;
use crate::volume_root;
use crate::world::World;
use ebs_csi_policy::facts::ExtFacts;
use ebs_csi_wire::{FsType, Step};
use rustix::fd::OwnedFd;
use rustix::fs::fstat;
use rustix::io::Errno;

/// XFS makes no allocation group smaller than this many blocks; a smaller rest stays unused.
const SMALLEST_XFS_REST: u64 = 64;

/// Grow an XFS that is mounted and not attached yet; true when it had to. Where the host does not
/// let the root be opened that the application closed to others, it is mounted as large as it is.
pub(super) fn fresh_xfs(mount: &Detached, device: &Device) -> Done<bool> {
    match mount.root() {
        Err(Errno::ACCESS) => {
            not_grown(FsType::Xfs, "the root directory is closed to others");
            Ok(false)
        }
        root => xfs(&root.at(Step::Grow)?, device.bytes()),
    }
}

/// Grow an ext that is mounted and not attached yet; false when the kernel will not.
pub(super) fn fresh_ext(mount: &Detached, device: &Device) -> bool {
    let grow = || -> Done<bool> {
        let root = mount.root().at(Step::Grow)?;
        ext(&root, device.bytes(), &superblock(device)?)
    };
    match grow() {
        Ok(_) => true,
        Err(stop) => {
            not_grown(FsType::Ext4, &format!("{stop:?}"));
            false
        }
    }
}

/// Say in the journal that a file system stays smaller than its disk.
pub(super) fn not_grown(fs: FsType, why: &str) {
    journal::warn("not-grown", &[("fs", fs.as_str()), ("why", why)]);
}

/// Grow a mounted XFS; true when it had to.
fn xfs(root: &OwnedFd, disk_bytes: u64) -> Done<bool> {
    let (block, blocks, inode_percent) = sys::xfs_geometry(root).at(Step::Grow)?;
    if block == 0 {
        return Err(failed(Step::Grow, Errno::INVAL));
    }
    let wanted = disk_bytes / u64::from(block);
    if wanted < blocks.saturating_add(SMALLEST_XFS_REST) {
        return Ok(false);
    }
    sys::xfs_grow(root, wanted, inode_percent).at(Step::Grow)?;
    Ok(true)
}

/// Grow a mounted ext3 or ext4; true when it had to.
fn ext(root: &OwnedFd, disk_bytes: u64, now: &ExtFacts) -> Done<bool> {
    let room = disk_bytes.saturating_sub(now.bytes);
    // A rest smaller than a group stays unused for ever.
    let group = now.group_blocks.saturating_mul(now.block_bytes);
    if now.block_bytes == 0 || room == 0 || room < group {
        return Ok(false);
    }
    let wanted = disk_bytes / now.block_bytes;
    privilege::with_resource(|| sys::ext4_grow(root, wanted)).at(Step::Grow)?;
    Ok(true)
}

/// Root of the file system that is mounted at a path, checked to be this disk's.
fn root_of(world: &World, relative: &str, device: u64) -> Done<OwnedFd> {
    let root = at_path(volume_root::open(world.root.held(), relative))?;
    if fstat(&root).at(Step::Stat)?.st_dev == device {
        Ok(root)
    } else {
        Err(ebs_csi_wire::Refusal::VolumeNotAtPath.into())
    }
}

/// Grow what is mounted at a path, whatever it is, unless it is read-only. Answers whether it grew and how large it is
/// now, in bytes.
pub(super) fn mounted(
    world: &World,
    relative: &str,
    device: &Device,
    read_only: bool,
) -> Done<(bool, u64)> {
    let root = root_of(world, relative, device.number())?;
    match sys::xfs_geometry(&root) {
        Ok(_) => {
            let grown = !read_only && xfs(&root, device.bytes())?;
            let (block, blocks, _) = sys::xfs_geometry(&root).at(Step::Grow)?;
            Ok((grown, blocks.saturating_mul(block.into())))
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => {
            let before = superblock(device)?;
            let grown = !read_only && ext(&root, device.bytes(), &before)?;
            let after = if grown { superblock(device)? } else { before };
            Ok((grown, after.bytes))
        }
        Err(e) => Err(e).at(Step::Grow),
    }
}

/// The ext superblock as the kernel holds it for the mounted file system: through the device's cache.
fn superblock(device: &Device) -> Done<ExtFacts> {
    let mut head = vec![0_u8; 4096];
    let length = rustix::io::pread(device, &mut head, 0).at(Step::Grow)?;
    head.truncate(length);
    crate::content::ext::read(&head, 0).ok_or_else(|| failed(Step::Grow, Errno::INVAL))
}

/// A restage of what is mounted already grows it when it can; that it cannot is no reason to fail the stage, which
/// has nothing left to do. NodeExpandVolume reports why.
pub(super) fn after_restage(world: &World, relative: &str, fs: FsType, device: &Device) -> bool {
    match mounted(world, relative, device, false) {
        Ok((grown, _)) => grown,
        Err(stop) => {
            journal::warn(
                "restage",
                &[
                    ("step", "grow"),
                    ("fs", fs.as_str()),
                    ("why", &format!("{stop:?}")),
                ],
            );
            false
        }
    }
}
