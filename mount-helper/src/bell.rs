//! Wakes the thread that talks, from the threads that work.
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;

/// A counter of the kernel that can be waited for beside sockets (eventfd(2)).
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A silent one.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Wake who waits.
    pub fn ring(&self) {
        // It fails only when it has been rung more often than can be counted.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// From now on it wakes again.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
