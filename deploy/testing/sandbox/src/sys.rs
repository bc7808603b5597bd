//! The calls of this crate that the compiler cannot check: a child's system calls between fork and
//! exec, and the change of a thread's mount namespace.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

/// The settings that a container runtime applies to a process before exec.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildSettings {
    /// Mount namespace to enter.
    pub(crate) namespace: Option<Arc<OwnedFd>>,
    /// Capability bounding set, one bit each; `None` keeps the present one.
    pub(crate) bounding: Option<u64>,
    /// User and group; `None` keeps the present ones.
    pub(crate) identity: Option<(u32, u32)>,
    /// Whether exec can no longer grant privileges.
    pub(crate) no_new_privs: bool,
}

/// Makes `command` start its process in a new session and with these settings.
pub(crate) fn apply_child_settings(command: &mut Command, settings: ChildSettings) {
    // SAFETY: the closure runs in the forked child and makes system calls only; it allocates
    // nothing and takes no lock.
    unsafe {
        command.pre_exec(move || enter(&settings));
    }
}

fn enter(settings: &ChildSettings) -> io::Result<()> {
    let checked = |result: libc::c_int| {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: takes no pointer.
    checked(unsafe { libc::setsid() })?;
    if let Some(namespace) = &settings.namespace {
        // SAFETY: the descriptor is open as long as `settings` lives; the child has one thread.
        checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS) })?;
    }
    if let Some(keep) = settings.bounding {
        for capability in 0..64_u64 {
            if keep >> capability & 1 == 0 {
                // SAFETY: takes numbers only. EINVAL means that the kernel has no such capability.
                let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
                if dropped < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
                    return Err(io::Error::last_os_error());
                }
            }
        }
    }
    if let Some((uid, gid)) = settings.identity {
        // A container runtime repeats the primary group among the supplementary groups.
        // SAFETY: the list has one entry; the others take numbers only.
        checked(unsafe { libc::setgroups(1, &raw const gid) })?;
        // SAFETY: as above.
        checked(unsafe { libc::setresgid(gid, gid, gid) })?;
        // SAFETY: as above.
        checked(unsafe { libc::setresuid(uid, uid, uid) })?;
    }
    if settings.no_new_privs {
        // SAFETY: takes numbers only.
        checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    }
    Ok(())
}

/// Moves the calling thread into a copy of its mount namespace.
pub(crate) fn unshare_mounts() -> io::Result<()> {
    // SAFETY: changes only what this thread sees; no memory is involved.
    let result = unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Moves the calling process into a new session, without a terminal.
pub(crate) fn own_session() {
    // SAFETY: takes no pointer; failing (already a session leader) is harmless.
    unsafe { libc::setsid() };
}

/// Ignores the signals with which a terminal or a service manager ends a program.
pub(crate) fn ignore_ending_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: SIG_IGN installs no handler that could run.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
