//! Where connections come from, and who may connect.
use crate::{channel, journal, sys};
use ebs_csi_policy::profile;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// A source of connections.
#[derive(Debug)]
pub(crate) enum Listener {
    /// A bound unix socket.
    Unix(OwnedFd),
    /// The socket on which the relay hands over connections over vsock.
    Relay(OwnedFd),
}

/// A new connection.
#[derive(Debug)]
pub(super) struct NewConnection {
    pub(super) socket: OwnedFd,
    /// The number of the Hello that is still to be answered, by which the peer has proved the key
    /// to the relay; `None` for a peer that the kernel named.
    pub(super) proved_hello: Option<u64>,
}

impl Listener {
    /// Makes a call to accept return when no connection waits.
    pub(super) fn set_nonblocking(&self) -> Result<(), Errno> {
        let flags = fcntl_getfl(self)?;
        fcntl_setfl(self, flags | OFlags::NONBLOCK)
    }

    pub(super) fn is_relay(&self) -> bool {
        matches!(self, Self::Relay(_))
    }

    /// Accepts a connection; `None` when the peer may not connect, which has been logged. Fails
    /// with [`Errno::PROTO`] when the relay has ended or handed over anything but a connection.
    pub(super) fn accept(&self) -> Result<Option<NewConnection>, Errno> {
        match self {
            Self::Unix(listener) => {
                let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
                let is_peer = is_peer(&socket);
                Ok(is_peer.then_some(NewConnection { socket, proved_hello: None }))
            }
            Self::Relay(relay) => match channel::receive(relay) {
                Ok((message, descriptors)) => {
                    let connection = handed_over(&message, descriptors).ok_or(Errno::PROTO)?;
                    Ok(Some(connection))
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Errno::AGAIN),
                Err(_) => Err(Errno::PROTO),
            },
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let (Self::Unix(socket) | Self::Relay(socket)) = self;
        socket.as_fd()
    }
}

/// Returns the connection of a message of the relay, which is not trusted to hand over nothing
/// else: `None` unless it is the number of a Hello with one stream socket of vsock.
fn handed_over(message: &[u8], mut descriptors: Vec<OwnedFd>) -> Option<NewConnection> {
    let hello = u64::from_le_bytes(message.try_into().ok()?);
    let socket = descriptors.pop().filter(|_| descriptors.is_empty())?;
    let is_connection = socket_domain(&socket) == Ok(AddressFamily::VSOCK)
        && socket_type(&socket) == Ok(SocketType::STREAM);
    is_connection.then_some(NewConnection { socket, proved_hello: Some(hello) })
}

/// Returns whether the policy lets the peer of a unix socket connect; logs it otherwise.
fn is_peer(socket: &OwnedFd) -> bool {
    let row = profile::BROKER.socket(LISTEN);
    match sys::peer_uid(socket) {
        Ok(uid) if row.is_some_and(|row| row.serves(uid)) => return true,
        Ok(uid) => journal::warn("peer-refused", &[("uid", &uid.to_string())]),
        Err(e) => journal::warn("peer-unknown", &[("why", &e.to_string())]),
    }
    false
}

/// The flag with the addresses.
const LISTEN: &str = "--listen";

/// Binds the socket with the group and the mode of the policy, owned by root.
pub(crate) fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::symlink_metadata(path) {
        // Left by a helper that was killed.
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let row = profile::BROKER.socket(LISTEN).ok_or(io::ErrorKind::Unsupported)?;
    let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener: OwnedFd = bound?.into();
    let group = Gid::from_raw(row.gid().ok_or(io::ErrorKind::Unsupported)?);
    // An owner may change a file's group to one that it is a member of, so no CAP_CHOWN is needed.
    rustix::thread::set_thread_groups(&[group])?;
    rustix::fs::chownat(rustix::fs::CWD, path, None, Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    rustix::fs::chmodat(rustix::fs::CWD, path, Mode::from_raw_mode(row.mode), AtFlags::empty())?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{socket_with, socketpair};

    /// Hands over a message and descriptors as the relay does.
    fn accepted(message: &[u8], handed: &[&OwnedFd]) -> Result<Option<NewConnection>, Errno> {
        let (relay, socket) = channel::pair().expect("pair");
        let listener = Listener::Relay(socket);
        listener.set_nonblocking().expect("set");
        assert_eq!(listener.accept().map(|_| ()), Err(Errno::AGAIN));
        let handed: Vec<_> = handed.iter().map(|fd| fd.as_fd()).collect();
        channel::send(&relay, message, &handed).expect("send");
        listener.accept()
    }

    #[test]
    fn only_vsock_connections_are_taken_from_relay() {
        let hello = 7_u64.to_le_bytes();
        let null = std::fs::File::open("/dev/null").expect("open").into();
        let (pipe, _end) = rustix::pipe::pipe().expect("pipe");
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (stream, _other) =
            socketpair(family, SocketType::STREAM, flags, None).expect("socketpair");
        let (datagrams, _other) = channel::pair().expect("pair");
        for wrong in [&[][..], &[&null], &[&pipe], &[&stream], &[&datagrams]] {
            assert_eq!(accepted(&hello, wrong).map(|_| ()), Err(Errno::PROTO), "{wrong:?}");
        }
        let Ok(vsock) = socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None) else {
            return println!("skipped: the kernel has no vsock");
        };
        for (message, handed) in [
            (&hello[..7], &[&vsock][..]),
            (b"longer than a number", &[&vsock]),
            (&hello, &[&vsock, &vsock]),
            (&hello, &[&vsock, &null]),
        ] {
            assert_eq!(accepted(message, handed).map(|_| ()), Err(Errno::PROTO), "{handed:?}");
        }
        let connection = accepted(&hello, &[&vsock]).expect("taken").expect("a connection");
        assert_eq!(connection.proved_hello, Some(7));
    }

    #[test]
    fn relay_that_has_ended_is_an_error() {
        let (relay, socket) = channel::pair().expect("pair");
        drop(relay);
        assert_eq!(Listener::Relay(socket).accept().map(|_| ()), Err(Errno::PROTO));
    }
}
