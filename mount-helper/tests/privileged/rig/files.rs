//! Files, images of disks and the file systems in them.
use super::shell;
use ebs_csi_wire::FsType;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

pub(crate) fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

pub(crate) fn write_synced(path: &Path, content: &str) {
    fs::write(path, content).expect("write");
    fs::File::open(path).and_then(|file| file.sync_all()).expect("sync");
}

pub(crate) fn sparse_file(path: &Path, bytes: u64) {
    fs::File::create(path).and_then(|file| file.set_len(bytes)).expect("image");
}

/// Copies a file of which the largest part is zero.
pub(crate) fn copy_sparse(from: &Path, to: &Path) {
    shell("cp", &["--sparse=always", text(from), text(to)]);
}

/// Makes a file system as a person does.
pub(crate) fn make_filesystem(fs: FsType, path: &str) {
    match fs {
        FsType::Xfs => shell("mkfs.xfs", &["-q", path]),
        _ => shell("mke2fs", &["-q", "-F", "-t", fs.as_str(), path]),
    };
}

/// Checks that a file system needs no repair.
pub(crate) fn check_filesystem(fs: FsType, path: &str) {
    match fs {
        FsType::Xfs => shell("xfs_repair", &["-n", path]),
        _ => shell("e2fsck", &["-f", "-n", path]),
    };
}

/// Claims a disk exclusively. O_CLOEXEC keeps the claim from programs that other tests start.
pub(crate) fn claim(path: impl AsRef<Path>) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path.as_ref(), flags, Mode::empty()).expect("claim")
}
