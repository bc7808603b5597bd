//! A node's own view of the machine: its devices at `/dev`, its kubelet directory shared with the
//! host, and no other node's directory.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};

use crate::mount_table;
use crate::sys;

/// Names and numbers of the character devices that every container has (Linux
/// `Documentation/admin-guide/devices.txt`).
const CHARACTER_DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Adds to a node's device directory the entries that every container has in `/dev`.
pub(crate) fn create_standard_devices(dev_dir: &Path) -> io::Result<()> {
    for (name, major, minor) in CHARACTER_DEVICES {
        let path = dev_dir.join(name);
        if !path.exists() {
            mknodat(
                CWD,
                &path,
                FileType::CharacterDevice,
                Mode::from_raw_mode(0o666),
                makedev(major, minor),
            )?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        }
    }
    for (name, target) in LINKS {
        if fs::symlink_metadata(dev_dir.join(name)).is_err() {
            symlink(target, dev_dir.join(name))?;
        }
    }
    Ok(())
}

/// Makes `kubelet_root` a mount point whose mounts propagate between the host and the namespaces
/// that copy it.
pub(crate) fn share(kubelet_root: &Path) -> io::Result<()> {
    mount_bind(kubelet_root, kubelet_root)?;
    // Leaves the peer group of the underlying file system first, then forms its own.
    mount_change(kubelet_root, MountPropagationFlags::PRIVATE)?;
    mount_change(kubelet_root, MountPropagationFlags::SHARED)?;
    Ok(())
}

/// Creates a mount namespace in which `/dev` is `dev_dir`, mounts beneath `kubelet_root` are shared
/// with the host, and nothing is mounted beneath `hidden`.
///
/// The namespace exists as long as the descriptor is open or a process is in the namespace.
pub(crate) fn create(
    dev_dir: &Path,
    kubelet_root: &Path,
    hidden: &[PathBuf],
) -> io::Result<OwnedFd> {
    std::thread::scope(|scope| {
        let made = scope.spawn(|| -> io::Result<OwnedFd> {
            sys::unshare_mounts()?;
            let mounts = mount_table::of("thread-self")?;
            for mount in mounts.iter().filter(|mount| !mount.point.starts_with(kubelet_root)) {
                match mount_change(&mount.point, MountPropagationFlags::PRIVATE) {
                    // A later mount hides this one: nothing that propagates to it is visible here.
                    Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            for mount in mounts.iter().rev() {
                if hidden.iter().any(|hidden| mount.point.starts_with(hidden)) {
                    unmount(&mount.point, UnmountFlags::DETACH)?;
                }
            }
            mount_bind(dev_dir, "/dev")?;
            Ok(File::open("/proc/thread-self/ns/mnt")?.into())
        });
        made.join().unwrap_or_else(|_| {
            Err(io::Error::other("the thread that makes the mount namespace panicked"))
        })
    })
}
