//! The calls of this crate that the compiler cannot check: what runs in a child between fork and
//! exec, the change of a thread's mount namespace, and the signals that a process ignores.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::setsid;
use rustix::thread::{self, CapabilitySet, Gid, LinkNameSpaceType, Uid, UnshareFlags};

/// The settings that a container runtime applies to a process before exec.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildSettings {
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

/// Applies the settings to this process, which has one thread.
fn enter(settings: &ChildSettings) -> io::Result<()> {
    setsid()?;
    if let Some(namespace) = &settings.namespace {
        thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    }
    if let Some(keep) = settings.bounding {
        for bit in (0..64).map(|number| 1 << number).filter(|bit| keep & bit == 0) {
            let capability = CapabilitySet::from_bits_retain(bit);
            match thread::remove_capability_from_bounding_set(capability) {
                // The kernel has no such capability.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    if let Some((uid, gid)) = settings.identity {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        // A container runtime repeats the primary group among the supplementary groups.
        thread::set_thread_groups(&[gid])?;
        thread::set_thread_res_gid(gid, gid, gid)?;
        thread::set_thread_res_uid(uid, uid, uid)?;
    }
    if settings.no_new_privs {
        thread::set_no_new_privs(true)?;
    }
    Ok(())
}

/// Moves the calling thread into a copy of its mount namespace.
pub(crate) fn unshare_mounts() -> io::Result<()> {
    // SAFETY: no descriptor table is unshared.
    Ok(unsafe { thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }?)
}

/// Ignores the signals with which a terminal or a service manager ends a program.
pub(crate) fn ignore_ending_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: SIG_IGN installs no handler that could run.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
