//! The connection to the mount-helper. The frames are the same over every stream, so only this file
//! depends on the kinds of sockets.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_vsock::{VsockAddr, VsockStream};

use crate::helper::Address;

/// The longest answer of a hypervisor to CONNECT: `OK`, a port of ten digits, the end of the line.
const LONGEST_ANSWER: usize = 16;

/// A connected stream.
#[derive(Debug)]
pub(in crate::helper) enum Stream {
    Unix(UnixStream),
    Vsock(VsockStream),
}

impl Address {
    pub(in crate::helper) async fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(path) => connect_to_helper(path).await.map(Stream::Unix),
            Self::Vsock { cid, port } => {
                VsockStream::connect(VsockAddr::new(*cid, *port)).await.map(Stream::Vsock)
            }
            Self::Hypervisor { socket, port } => {
                connect_through(socket, *port).await.map(Stream::Unix)
            }
        }
    }
}

/// Connects to a socket at which root listens, as the mount-helper does before it becomes its own
/// users. In a test without root, the helper has this process's user.
async fn connect_to_helper(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await?;
    let user = stream.peer_cred()?.uid();
    if user == 0 || user == rustix::process::geteuid().as_raw() {
        return Ok(stream);
    }
    let why = format!("user {user} listens at the socket; the mount-helper listens as root");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Connects to a port of a virtual machine through its hypervisor's socket.
async fn connect_through(socket: &Path, port: u32) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!("CONNECT {port}\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(LONGEST_ANSWER);
    // Byte by byte: what follows the line belongs to the helper.
    while answer.last() != Some(&b'\n') {
        if answer.len() == LONGEST_ANSWER {
            return Err(io::Error::other("no hypervisor answers at the socket"));
        }
        match stream.read_u8().await {
            Ok(byte) => answer.push(byte),
            // Hypervisors close the connection when nobody listens at the port.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Err(error) => return Err(error),
        }
    }
    let number = answer.strip_prefix(b"OK ").and_then(|rest| rest.strip_suffix(b"\n"));
    match number {
        Some(digits) if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => Ok(stream),
        _ => Err(io::Error::other("no hypervisor answers at the socket")),
    }
}

impl Stream {
    /// Writes all bytes.
    pub(in crate::helper) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(bytes).await,
            Self::Vsock(stream) => stream.write_all(bytes).await,
        }
    }

    /// Appends the available bytes to `buffer`; returns 0 at the end of the stream.
    pub(in crate::helper) async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read_buf(buffer).await,
            Self::Vsock(stream) => stream.read_buf(buffer).await,
        }
    }
}
