//! The only unsafe code of this crate: ptrace(2) has no safe wrapper.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

/// `PTRACE_SECCOMP_GET_FILTER` of linux/ptrace.h.
const GET_FILTER: i32 = 0x420c;
/// The bytes of the longest filter: `BPF_MAXINSNS` instructions of 8 bytes.
const MAX_FILTER: usize = 4096 * 8;
/// `PTRACE_EVENT_STOP` of linux/ptrace.h.
const EVENT_STOP: i32 = 128;

fn checked(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Returns the thread's number as the kernel takes it.
fn number(thread: u32) -> io::Result<libc::pid_t> {
    libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::NotFound.into())
}

/// Makes this thread the tracer of another, without stopping that one.
pub(crate) fn seize(thread: u32) -> io::Result<()> {
    let thread = number(thread)?;
    // SAFETY: this request takes a thread and two numbers, which are 0, and touches no memory.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_SEIZE, thread, null_mut::<c_void>(), null_mut::<c_void>())
    };
    checked(done).map(drop)
}

pub(crate) fn interrupt(thread: u32) -> io::Result<()> {
    let thread = number(thread)?;
    // SAFETY: as above.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, thread, null_mut::<c_void>(), null_mut::<c_void>())
    };
    checked(done).map(drop)
}

/// Returns a system call filter of a stopped thread; index 0 is the one that was installed last.
pub(crate) fn filter(thread: u32, index: usize) -> io::Result<Vec<u8>> {
    let thread = number(thread)?;
    let mut bytes = vec![0_u8; MAX_FILTER];
    // SAFETY: the kernel writes at most `BPF_MAXINSNS` instructions, for which the buffer has room.
    let instructions =
        unsafe { libc::ptrace(GET_FILTER as _, thread, index as *mut c_void, bytes.as_mut_ptr()) };
    bytes.truncate(checked(instructions)? * 8);
    Ok(bytes)
}

/// Returns the signal that a stopped thread was about to receive; 0 when it stopped for the tracer.
pub(crate) fn signal_on_its_way(thread: u32) -> io::Result<i32> {
    let thread = number(thread)?;
    // SAFETY: `siginfo_t` is plain data, for which zeroes are a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `siginfo_t`.
    let done =
        unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, thread, null_mut::<c_void>(), &mut info) };
    checked(done)?;
    Ok(if info.si_code >> 8 == EVENT_STOP { 0 } else { info.si_signo })
}

/// Lets a stopped thread continue with this signal, or with none, and traces it no longer.
pub(crate) fn detach(thread: u32, signal: i32) -> io::Result<()> {
    let thread = number(thread)?;
    // SAFETY: this request takes a thread and two numbers, and touches no memory.
    let done = unsafe {
        let signal = signal as usize as *mut c_void;
        libc::ptrace(libc::PTRACE_DETACH, thread, null_mut::<c_void>(), signal)
    };
    checked(done).map(drop)
}

/// Passes a traced thread that has ended on to its parent.
pub(crate) fn release_ended(thread: u32) {
    if let Ok(thread) = number(thread) {
        // SAFETY: without a place for the status the call touches no memory.
        unsafe { libc::waitpid(thread, null_mut(), libc::WNOHANG | libc::__WALL) };
    }
}

/// Returns whether a process or thread ended, or a descriptor was closed, while it was read.
pub(crate) fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Opens a path as a process finds it, without a right on the content. A link in it leads nowhere
/// outside the root of the process.
pub(crate) fn open_in_root(process: u32, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(
        CWD,
        format!("/proc/{process}/root"),
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(&root, path, flags, Mode::empty(), resolve)?)
}
