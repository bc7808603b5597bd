//! The sockets that agents connect to, and who may.
use crate::journal;
use crate::settings::listen::Listen;
use crate::sys;
use ebs_csi_wire::Key;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io;
use std::sync::Arc;

/// A bound socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// What connections over vsock have to prove; None for a unix socket.
    pub(crate) vsock: Option<Vsock>,
}

/// How the peers of a vsock port are recognised.
#[derive(Debug)]
pub(crate) struct Vsock {
    /// The port.
    pub(crate) port: u32,
    /// The machines that may connect.
    peers: Vec<u32>,
    /// The key that a peer proves, and to which this side proves itself.
    pub(crate) key: Arc<Key>,
}

impl Listener {
    /// Takes a bound unix socket.
    pub(crate) fn unix(socket: OwnedFd) -> Self {
        let vsock = None;
        Self { socket, vsock }
    }

    /// Binds a vsock port.
    pub(crate) fn vsock(
        cid: Option<u32>,
        port: u32,
        peers: &[u32],
        key: Arc<Key>,
    ) -> io::Result<Self> {
        let peers = peers.to_vec();
        Ok(Self {
            socket: sys::listen_on_vsock(cid, port)?,
            vsock: Some(Vsock { port, peers, key }),
        })
    }

    /// Returns a port as [`Self::vsock`] does, without a socket.
    #[cfg(test)]
    pub(crate) fn for_test(port: u32, key: Arc<Key>) -> Vsock {
        let peers = Vec::new();
        Vsock { port, peers, key }
    }

    /// Makes accept(2) return when no connection waits.
    pub(super) fn set_nonblocking(&self) -> Result<(), Errno> {
        let flags = fcntl_getfl(&self.socket)?;
        fcntl_setfl(&self.socket, flags | OFlags::NONBLOCK)
    }

    /// Accepts a connection; `None` when the peer may not connect, which has been logged.
    pub(super) fn accept(&self, peer_uid: u32) -> Result<Option<OwnedFd>, Errno> {
        let Some(vsock) = &self.vsock else {
            let socket = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
            return Ok(is_agent(&socket, peer_uid).then_some(socket));
        };
        let (socket, cid) = sys::accept_vsock(&self.socket)?;
        if !vsock.peers.contains(&cid) {
            journal::warn("peer-refused", &[("cid", &cid.to_string())]);
            return Ok(None);
        }
        Ok(Some(socket))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns whether the peer of a unix socket is the node-agent; logs it otherwise.
fn is_agent(socket: &OwnedFd, peer_uid: u32) -> bool {
    match sys::peer_uid(socket) {
        Ok(uid) if uid == peer_uid => return true,
        Ok(uid) => journal::warn("peer-refused", &[("uid", &uid.to_string())]),
        Err(e) => journal::warn("peer-unknown", &[("why", &e.to_string())]),
    }
    false
}

/// Reads the key file, when there is one.
pub(crate) fn key(path: Option<&std::path::Path>) -> Result<Option<Arc<Key>>, (String, io::Error)> {
    path.map(|path| {
        Key::read(path)
            .map(Arc::new)
            .map_err(|why| (path.display().to_string(), io::Error::other(why)))
    })
    .transpose()
}

/// Binds a vsock address; a unix address is bound by `unix`.
pub(crate) fn bind(
    listen: &Listen,
    peers: &[u32],
    key: Option<&Arc<Key>>,
    unix: impl Fn(&std::path::Path) -> io::Result<OwnedFd>,
) -> Result<Listener, (String, io::Error)> {
    let bound = match (listen, key) {
        (Listen::Unix(path), _) => unix(path).map(Listener::unix),
        (Listen::Vsock { cid, port }, Some(key)) => {
            Listener::vsock(*cid, *port, peers, Arc::clone(key))
        }
        // The command line was refused.
        (Listen::Vsock { .. }, None) => Err(io::ErrorKind::InvalidInput.into()),
    };
    bound.map_err(|e| (listen.to_string(), e))
}
