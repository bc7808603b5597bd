//! The two capabilities that are permitted but not effective. They are raised for one call, on the
//! calling thread alone.
//!
//! A host that does not grant them is tolerated: the call is made without them, and the kernel's
//! answer counts.
use crate::path_resolution;
use ebs_csi_policy::profile::BROKER;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Makes a call with `CAP_SYS_RESOURCE`, which growing a mounted ext4 needs.
pub fn with_resource<T>(call: impl FnOnce() -> T) -> T {
    with("CAP_SYS_RESOURCE", call)
}

/// Returns whether the host grants the capability of [`with_resource`].
pub fn has_resource() -> bool {
    raise("CAP_SYS_RESOURCE").is_some()
}

/// Makes a call with `CAP_DAC_READ_SEARCH`, which opening the root of a volume needs when its
/// application made it private.
pub fn with_search<T>(call: impl FnOnce() -> T) -> T {
    with("CAP_DAC_READ_SEARCH", call)
}

/// Opens the root directory of a volume's file system, at `path` beneath `at`, for its ioctls and
/// to write it back. An application may have made the directory private with any owner and mode:
/// then this fails with `EACCES` where the host does not grant `CAP_DAC_READ_SEARCH`.
pub(crate) fn open_volume_root(at: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let open = || path_resolution::open(&at, path, OFlags::RDONLY | OFlags::DIRECTORY);
    match open() {
        Err(Errno::ACCESS) => with_search(open),
        other => other,
    }
}

fn with<T>(name: &str, call: impl FnOnce() -> T) -> T {
    let _raised = raise(name);
    call()
}

fn raise(name: &str) -> Option<ebs_csi_confine::Raised> {
    ebs_csi_confine::raise(BROKER.capability(name)?).ok()
}
