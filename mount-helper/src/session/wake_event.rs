//! Wakes the thread that serves the socket, from the worker threads.
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;

/// A counter of the kernel that can be polled together with sockets (eventfd(2)).
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// Creates a bell that has not been rung.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Wakes the thread that waits for this bell.
    pub fn ring(&self) {
        // The write fails only when the counter has reached its maximum, and then the bell is rung
        // already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Resets the counter, so that the next [`Bell::ring`] wakes the waiting thread again.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
