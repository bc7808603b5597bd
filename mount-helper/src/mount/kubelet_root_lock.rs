//! Ensures that one helper serves a kubelet root. A second one would take over the first one's
//! socket, and neither would know what the other is about to mount. The second helper waits until
//! the first has ended, for example when a new pod of a DaemonSet starts before the old one is
//! gone.
//!
//! The supervisor holds the lock. The broker only marks the root as in use: a thread of it that
//! waits for a disk that does not answer cannot be ended, and must not keep the next helper from
//! serving the other disks. The relay marks it, too: the next helper binds the same vsock ports.
use crate::mount::kubelet_root::KubeletRoot;
use crate::{journal, path_resolution, sys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// How long to wait beyond three times the grace of the other helper: the other one is told to end
/// only once this pod is seen to run, and its agent ends before it.
const EXTRA_WAIT: Duration = Duration::from_secs(5);
/// How long to wait for the broker of a helper whose supervisor has ended. A broker that has ended
/// no later waits in the kernel, where it can finish one system call and nothing else.
const BROKER_WAIT: Duration = Duration::from_secs(2);
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

#[derive(Debug)]
pub(crate) enum NotLocked {
    /// It received a signal to end while it waited.
    Stopped,
    /// The other helper did not end in time.
    OtherHelper,
    Os(io::Error),
}

impl<E: Into<io::Error>> From<E> for NotLocked {
    fn from(error: E) -> Self {
        Self::Os(error.into())
    }
}

/// Locks the kubelet root, and returns the descriptor that holds the lock. The kernel releases the
/// lock when the last process that has the descriptor ends, however that process ends. `grace` is
/// the time that a helper has to end.
pub(crate) fn lock(root: &KubeletRoot, grace: Duration) -> Result<OwnedFd, NotLocked> {
    let held = open(root)?;
    if try_lock(&held)? {
        wait_for_broker(&held)?;
        return Ok(held);
    }
    // Process 1 of a container gets only the signals that it handles itself.
    let signals = sys::signal_descriptor()?;
    let timeout = grace * 3 + EXTRA_WAIT;
    let meaning =
        "another mount-helper serves this kubelet root; this one serves when that has ended";
    let (root, seconds) = (("kubelet-root", root.path().as_str()), timeout.as_secs().to_string());
    journal::warn("waiting", &[root, ("seconds", &seconds), ("meaning", meaning)]);
    let end = Instant::now() + timeout;
    while Instant::now() < end {
        match poll(&mut [PollFd::new(&signals, PollFlags::IN)], Some(&PAUSE)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        while let Some(signal) = sys::next_signal(&signals)? {
            if signal != libc::SIGCHLD {
                return Err(NotLocked::Stopped);
            }
        }
        if try_lock(&held)? {
            wait_for_broker(&held)?;
            return Ok(held);
        }
    }
    Err(NotLocked::OtherHelper)
}

/// Marks the kubelet root as in use, for as long as the returned descriptor is open.
pub(crate) fn mark(root: &KubeletRoot) -> io::Result<OwnedFd> {
    let held = open(root)?;
    sys::mark_in_use(&held)?;
    Ok(held)
}

/// Waits until no broker and no relay of an earlier helper are left, or it is clear that the broker
/// does not end.
fn wait_for_broker(held: &OwnedFd) -> io::Result<()> {
    let end = Instant::now() + BROKER_WAIT;
    while sys::is_in_use(held)? {
        if Instant::now() >= end {
            let meaning = "its broker has not ended, as when a disk does not answer; this helper \
                           serves the other disks";
            journal::warn("earlier-helper", &[("meaning", meaning)]);
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn open(root: &KubeletRoot) -> Result<OwnedFd, Errno> {
    path_resolution::open(root.held(), ".", OFlags::RDONLY | OFlags::DIRECTORY)
}

fn try_lock(held: &OwnedFd) -> Result<bool, Errno> {
    match flock(held, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}
