//! Ensures that one helper serves a kubelet root. A second one would take over the first one's
//! socket, and neither would know what the other is about to mount. The second helper waits until
//! the first has ended, for example when a new pod of a DaemonSet starts before the old one is
//! gone.
use crate::journal;
use crate::mount::kubelet_root::KubeletRoot;
use crate::path_resolution;
use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// How long to wait beyond three times the grace of the other helper: the other one is told to end
/// only once this pod is seen to run, and its agent ends before it.
const EXTRA_WAIT: Duration = Duration::from_secs(5);
/// Time between two attempts.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The lock on the kubelet root. The kernel releases it when the last process that holds it ends,
/// however that process ends.
#[derive(Debug)]
pub(crate) struct KubeletRootLock(
    #[expect(dead_code, reason = "held for as long as this lives")] OwnedFd,
);

/// Why this helper does not serve.
#[derive(Debug)]
pub(crate) enum NotLocked {
    /// It received a signal to end while it waited.
    Stopped,
    /// The other helper did not end in time.
    OtherHelper,
    /// A system call failed.
    Os(io::Error),
}

impl<E: Into<io::Error>> From<E> for NotLocked {
    fn from(error: E) -> Self {
        Self::Os(error.into())
    }
}

/// Locks the kubelet root. `grace` is the time that a helper has to end.
pub(crate) fn lock(root: &KubeletRoot, grace: Duration) -> Result<KubeletRootLock, NotLocked> {
    let held = path_resolution::open(root.held(), ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    if try_lock(&held)? {
        return Ok(KubeletRootLock(held));
    }
    // Process 1 of a container gets only the signals that it handles itself.
    let signals = sys::signal_descriptor()?;
    let timeout = grace * 3 + EXTRA_WAIT;
    journal::warn(
        "waiting",
        &[
            ("kubelet-root", root.path().as_str()),
            ("seconds", &timeout.as_secs().to_string()),
            (
                "meaning",
                "another mount-helper serves this kubelet root; this one serves when that has ended",
            ),
        ],
    );
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
            return Ok(KubeletRootLock(held));
        }
    }
    Err(NotLocked::OtherHelper)
}

fn try_lock(held: &OwnedFd) -> Result<bool, Errno> {
    match flock(held, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}
