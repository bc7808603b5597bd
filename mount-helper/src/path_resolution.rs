//! Resolves paths beneath a held directory, component by component, never through a symbolic link.
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

fn how() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

/// Opens `path` beneath `root` (openat2(2)). Fails with ELOOP when any component is a symbolic
/// link, and with EXDEV when the path leaves `root`.
///
/// `flags` must not contain O_NOFOLLOW: together with O_PATH it would open a final link itself.
pub(crate) fn open(root: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    loop {
        match openat2(root.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), how()) {
            // A rename elsewhere in the tree raced with the look-up, and the kernel asks for a
            // retry.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

/// A resolved path: a descriptor that was opened with O_PATH, which names the file and permits no
/// reading or writing. The file keeps this name even when the path leads elsewhere later.
#[derive(Debug)]
pub(crate) struct HeldPath(OwnedFd);

impl AsFd for HeldPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) fn hold(root: impl AsFd, path: &str) -> Result<HeldPath, Errno> {
    open(root, path, OFlags::PATH).map(HeldPath)
}

pub(crate) fn hold_directory(root: impl AsFd, path: &str) -> Result<HeldPath, Errno> {
    open(root, path, OFlags::PATH | OFlags::DIRECTORY).map(HeldPath)
}

/// Splits a relative path into its parent ("." for a name directly beneath the root) and its last
/// component.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or((".", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(directory: &tempfile::TempDir) -> OwnedFd {
        rustix::fs::open(directory.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
            .expect("root")
    }

    #[test]
    fn a_symbolic_link_is_refused_wherever_it_stands() {
        let directory = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(directory.path().join("a/b")).expect("mkdir");
        std::os::unix::fs::symlink("b", directory.path().join("a/last")).expect("symlink");
        std::os::unix::fs::symlink("a", directory.path().join("first")).expect("symlink");
        let root = root(&directory);
        assert!(hold(&root, "a/b").is_ok());
        for path in ["a/last", "first/b", "a/last/x"] {
            assert_eq!(hold(&root, path).err(), Some(Errno::LOOP), "{path}");
        }
    }

    #[test]
    fn paths_leaving_root_directory_are_refused() {
        let directory = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir(directory.path().join("a")).expect("mkdir");
        let root = root(&directory);
        for path in ["..", "a/../..", "/etc", "a/../../etc"] {
            assert_eq!(hold(&root, path).err(), Some(Errno::XDEV), "{path}");
        }
    }

    #[test]
    fn a_path_is_split_at_its_last_component() {
        assert_eq!(split("a/b/c"), ("a/b", "c"));
        assert_eq!(split("c"), (".", "c"));
    }
}
