//! A vsock port of this machine, and the machines that may connect at it.
use crate::{journal, sys};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::io;

/// A bound port.
#[derive(Debug)]
pub(crate) struct VsockPort {
    socket: OwnedFd,
    /// Its number, which a proof of the key covers.
    pub(super) number: u32,
}

impl VsockPort {
    /// Listens at a port of one CID of this machine, or of all.
    pub(crate) fn bind(cid: Option<u32>, number: u32) -> io::Result<Self> {
        let socket = sys::listen_on_vsock(cid, number)?;
        // An accept must return when no connection waits.
        let flags = fcntl_getfl(&socket)?;
        fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
        Ok(Self { socket, number })
    }

    /// Accepts a connection; `None` when its machine is not among `peers`, which has been logged.
    pub(super) fn accept(&self, peers: &[u32]) -> Result<Option<OwnedFd>, Errno> {
        let (socket, cid) = sys::accept_vsock(&self.socket)?;
        if !peers.contains(&cid) {
            journal::warn("peer-refused", &[("cid", &cid.to_string())]);
            return Ok(None);
        }
        Ok(Some(socket))
    }
}

impl AsFd for VsockPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
