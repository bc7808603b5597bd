//! The root directory of a volume's file system. An application may have made it private with any
//! owner and mode, so it is opened here and nowhere else.
use crate::mount::privilege;
use crate::path_resolution;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens the directory at `path` beneath `at`, for its ioctls and to write it back. Fails with
/// `EACCES` when the directory is private and the host does not grant `CAP_DAC_READ_SEARCH`.
pub(crate) fn open(at: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let open = || path_resolution::open(&at, path, OFlags::RDONLY | OFlags::DIRECTORY);
    match open() {
        Err(Errno::ACCESS) => privilege::with_search(open),
        other => other,
    }
}
