//! The sockets that agents connect to, and who may.
use crate::session::listen::Listen;
use crate::{journal, sys};
use ebs_csi_policy::profile;
use ebs_csi_wire::Key;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
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
    pub(crate) port: u32,
    /// The machines that may connect.
    pub(super) peers: Vec<u32>,
    /// The key that a peer proves, and to which this side proves itself.
    pub(crate) key: Arc<Key>,
}

impl Listener {
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
pub(crate) fn key(path: Option<&Path>) -> Result<Option<Arc<Key>>, (String, io::Error)> {
    path.map(|path| {
        Key::read(path)
            .map(Arc::new)
            .map_err(|why| (path.display().to_string(), io::Error::other(why)))
    })
    .transpose()
}

pub(crate) fn bind(
    listen: &Listen,
    peers: &[u32],
    key: Option<&Arc<Key>>,
) -> Result<Listener, (String, io::Error)> {
    let bound = match (listen, key) {
        (Listen::Unix(path), _) => bind_unix(path).map(|socket| Listener { socket, vsock: None }),
        (Listen::Vsock { cid, port }, Some(key)) => {
            let vsock = Vsock { port: *port, peers: peers.to_vec(), key: Arc::clone(key) };
            sys::listen_on_vsock(*cid, *port).map(|socket| Listener { socket, vsock: Some(vsock) })
        }
        // The command line was refused.
        (Listen::Vsock { .. }, None) => Err(io::ErrorKind::InvalidInput.into()),
    };
    bound.map_err(|e| (listen.to_string(), e))
}

/// Binds the socket for the node-agent alone: mode 0660, owned by root and the agent's group.
fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::symlink_metadata(path) {
        // Left by a helper that was killed.
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener: OwnedFd = bound?.into();
    let group = Gid::from_raw(profile::NODE_AGENT.identity.gid);
    // An owner may change a file's group to one that it is a member of, so no CAP_CHOWN is needed.
    rustix::thread::set_thread_groups(&[group])?;
    rustix::fs::chownat(rustix::fs::CWD, path, None, Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    rustix::fs::chmodat(rustix::fs::CWD, path, Mode::from_raw_mode(0o660), AtFlags::empty())?;
    Ok(listener)
}
