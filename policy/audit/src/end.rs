//! The end of what is read: processes, threads and descriptors come and go.

use std::io;

/// Returns whether a process or thread ended, or a descriptor was closed, while it was read.
pub(crate) fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}
