//! The first step of a `main`: it closes inherited descriptors and clears the environment.

use std::ffi::OsString;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};

use ebs_csi_policy::profile::Profile;

use crate::sys;

/// Closes inherited descriptors and removes every environment variable that the profile does not
/// keep, as the first step of a process. An error says what failed.
pub fn clean(profile: &Profile) -> io::Result<()> {
    let named = |what: &'static str| {
        move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"))
    };
    close_inherited_descriptors(&[]).map_err(named("closing inherited descriptors"))?;
    keep_environment(profile).map_err(named("clearing the environment"))
}

/// Closes every descriptor from 3 on, except those in `keep`, so that the process does not use a
/// descriptor that a parent left open. Opens `/dev/null` on each of the descriptors 0, 1 and 2 that
/// is closed, so that no file that is opened later takes its number.
pub fn close_inherited_descriptors(keep: &[RawFd]) -> io::Result<()> {
    for standard in 0..3 {
        if !sys::is_open(standard) {
            // The kernel allocates the lowest free number, which is this one.
            let sink = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
            leave_open(sink.into());
        }
    }
    let mut keep: Vec<RawFd> = keep.iter().copied().filter(|fd| *fd >= 3).collect();
    keep.sort_unstable();
    keep.dedup();
    let mut first: u32 = 3;
    for kept in keep {
        let kept = u32::try_from(kept).unwrap_or(u32::MAX);
        if kept > first {
            sys::close_range(first, kept - 1)?;
        }
        first = kept.saturating_add(1);
    }
    sys::close_range(first, u32::MAX)
}

/// Gives up ownership of a descriptor, which stays open until the process ends.
pub(crate) fn leave_open(descriptor: OwnedFd) {
    let _ = descriptor.into_raw_fd();
}

/// Removes every environment variable that the profile does not keep. Must be called before the
/// first thread is started. Fails with [`io::ErrorKind::InvalidInput`] when there
/// is a second thread, or an I/O error when the threads cannot be listed.
pub fn keep_environment(profile: &Profile) -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the environment can only be changed before the first thread is started",
        ));
    }
    let others: Vec<OsString> = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| !name.to_str().is_some_and(|name| profile.keeps_variable(name)))
        .collect();
    for name in others {
        sys::remove_variable(&name);
    }
    Ok(())
}
