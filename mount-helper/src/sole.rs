//! One helper for each kubelet root. A second one would take the first one's socket, and neither
//! would know what the other is about to mount: it waits until the first has ended, as when a new
//! pod of a DaemonSet starts before the old one is gone.
use crate::beneath;
use crate::journal;
use crate::place::Root;
use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// How long the other one may take beyond three times what it has for its end: it is told to end
/// once this pod is seen to run, and its agent ends before it.
const LONGER: Duration = Duration::from_secs(5);
/// Time between two tries.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// The lock on the kubelet root. The kernel gives it up with the last process that has it, however
/// that ends.
#[derive(Debug)]
pub struct Sole(#[expect(dead_code, reason = "held for as long as this lives")] OwnedFd);

/// Why this helper does not serve.
#[derive(Debug)]
pub enum NotSole {
    /// It was told to end while it waited.
    Told,
    /// The other one did not end in time.
    Other,
    /// A system call failed.
    Os(io::Error),
}

impl<E: Into<io::Error>> From<E> for NotSole {
    fn from(error: E) -> Self {
        Self::Os(error.into())
    }
}

/// Lock the kubelet root. `grace` is the time that a helper has for its end.
pub fn lock(root: &Root, grace: Duration) -> Result<Sole, NotSole> {
    let held = beneath::open(root.held(), ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    if tried(&held)? {
        return Ok(Sole(held));
    }
    // The first process of a container hears only the signals that it asks for.
    let signals = sys::signal_descriptor()?;
    let patience = grace * 3 + LONGER;
    journal::warn(
        "waiting",
        &[
            ("kubelet-root", root.path().as_str()),
            ("seconds", &patience.as_secs().to_string()),
            (
                "meaning",
                "another mount-helper serves this kubelet root; this one serves when that has ended",
            ),
        ],
    );
    let end = Instant::now() + patience;
    while Instant::now() < end {
        match poll(&mut [PollFd::new(&signals, PollFlags::IN)], Some(&PAUSE)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        while let Some(signal) = sys::next_signal(&signals)? {
            if signal != libc::SIGCHLD {
                return Err(NotSole::Told);
            }
        }
        if tried(&held)? {
            return Ok(Sole(held));
        }
    }
    Err(NotSole::Other)
}

fn tried(held: &OwnedFd) -> Result<bool, Errno> {
    match flock(held, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}
