//! The system call filters of a live thread, read by ptrace(2).
//!
//! `/proc` shows how many filters there are and not what they answer; ptrace shows the programs
//! themselves. The kernel grants that to a process with CAP_SYS_ADMIN and CAP_SYS_PTRACE that is
//! under no filter of its own.

use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::read_status;
use crate::sys;

/// A thread stops once it is neither running nor in an uninterruptible call.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two looks whether it has stopped.
const PAUSE: Duration = Duration::from_micros(100);

/// Makes a thread continue when it is dropped.
struct Traced(u32);

impl Drop for Traced {
    fn drop(&mut self) {
        let Self(thread) = *self;
        // Without the signal it would be lost.
        let detached = sys::signal_on_its_way(thread).and_then(|one| sys::detach(thread, one));
        if detached.is_err() {
            sys::release_ended(thread);
        }
    }
}

/// Returns the filters of a thread, the newest first. The thread is stopped for some microseconds.
/// Fails with [`io::ErrorKind::NotFound`] when the thread has ended, and with
/// [`io::ErrorKind::TimedOut`] when it did not stop; it then stays traced until this process ends.
pub(crate) fn of_thread(thread: u32) -> io::Result<Vec<Vec<u8>>> {
    sys::seize(thread)?;
    let _traced = Traced(thread);
    sys::interrupt(thread)?;
    let end = Instant::now() + STOP_TIMEOUT;
    let mut found = Vec::new();
    loop {
        match sys::filter(thread, found.len()) {
            Ok(program) => found.push(program),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT) => return Ok(found),
                // It has not stopped yet, or has ended.
                Some(libc::ESRCH) if !has_ended(thread) => {
                    if Instant::now() > end {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    sleep(PAUSE);
                }
                Some(libc::ESRCH) => return Err(io::ErrorKind::NotFound.into()),
                _ => return Err(error),
            },
        }
    }
}

fn has_ended(thread: u32) -> bool {
    let status = read_status(&Path::new("/proc").join(thread.to_string()));
    status.map_or(true, |status| status.ended)
}
