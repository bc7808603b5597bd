//! The only unsafe code of this crate: system calls without a safe wrapper.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::os::fd::RawFd;

/// Calls PR_CAPBSET_DROP of prctl(2).
pub(crate) fn drop_from_bounding_set(capability: u8) -> io::Result<()> {
    // SAFETY: this operation takes two numbers and touches no memory of the process.
    let result =
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns the kernel's Landlock ABI; 0 where the kernel has no Landlock.
#[must_use]
pub fn landlock_abi() -> u8 {
    /// `LANDLOCK_CREATE_RULESET_VERSION` of landlock_create_ruleset(2).
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes a null pointer and a size of 0, and returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    u8::try_from(version).unwrap_or(0)
}

/// Returns the heap's free pages to the kernel: malloc_trim(3). Only glibc has the call.
pub(crate) fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: releases pages of the heap that hold no allocation.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Calls close_range(2); both bounds are included.
pub(crate) fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: closes descriptors by number. The caller is `main` at its start, when no value of the
    // program owns a descriptor from 3 on, except those that `main` keeps.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

pub(crate) fn is_open(descriptor: RawFd) -> bool {
    // SAFETY: F_GETFD takes a number and touches no memory of the process.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) >= 0 }
}

/// Removes an environment variable. The caller has checked that the process has one thread.
pub(crate) fn remove_variable(name: &OsStr) {
    // SAFETY: no other thread reads or writes the environment, because there is none.
    unsafe { std::env::remove_var(name) };
}
