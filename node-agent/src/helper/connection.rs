//! One connection to the mount-helper: a greeting, then one request at a time.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::time::Duration;

use ebs_csi_wire::{
    Challenge, Hello, Key, KeyStep, Nonce, Operation, Outcome, Refusal, Reply, Request, Side,
    Transcript, Welcome, frame,
};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};
use tokio_vsock::{VsockAddr, VsockStream};

use super::{Address, Deadline, HelperError, Target};

/// How long to wait for a helper that is being restarted.
const CONNECT: Duration = Duration::from_millis(1500);
/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// Limit for the greeting, which is short.
const GREETING: Duration = Duration::from_secs(3);
/// The longest answer of a hypervisor to CONNECT: `OK`, a port of ten digits, the end of the line.
const LONGEST_ANSWER: usize = 16;

/// A connected stream of either kind of socket. The frames are the same over both.
trait Stream: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Debug + Send + Unpin> Stream for T {}

/// A connection after its greeting.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    pub(super) welcome: Welcome,
}

impl Connection {
    /// Connects and greets, within the deadline and the wait for a restart.
    pub(super) async fn open(target: &Target, deadline: Deadline) -> Result<Self, HelperError> {
        let until = deadline.instant().min(Instant::now() + CONNECT);
        let address = &target.address;
        let mut refused = None;
        let stream = loop {
            match timeout_at(until, connect(address)).await {
                Ok(Ok(stream)) => break stream,
                Ok(Err(error)) => refused = Some(error),
                Err(_) if refused.is_none() => return Err(HelperError::Silent),
                Err(_) => {}
            }
            if Instant::now() + PAUSE < until {
                tokio::time::sleep(PAUSE).await;
            } else if let Some(source) = refused {
                return Err(HelperError::Down { address: address.to_string(), source });
            }
        };
        let mut connection = Self { stream, received: Vec::new(), welcome: Welcome::default() };
        let hello = match (&target.key, address.port()) {
            (Some(key), Some(port)) => {
                connection.prove(key, port, GREETING.min(deadline.left())).await?
            }
            _ => Hello::OURS,
        };
        let greeting = GREETING.min(deadline.left());
        match connection.exchange(&hello_request(hello), greeting).await? {
            Outcome::Welcome(welcome)
                if (hello.oldest..=hello.newest).contains(&welcome.version) =>
            {
                connection.welcome = welcome;
                Ok(connection)
            }
            Outcome::Welcome(_) => Err(HelperError::Refused(Refusal::Version.into())),
            Outcome::Refused(refused) if refused.reason == Refusal::Version => {
                Err(HelperError::Refused(refused))
            }
            _ => Err(HelperError::Foreign("another answer than a welcome".into())),
        }
    }

    /// Has the helper prove the key, and returns the Hello with which this side proves the key.
    async fn prove(
        &mut self,
        key: &Key,
        port: u32,
        greeting: Duration,
    ) -> Result<Hello, HelperError> {
        let mut own = [0; 32];
        match getrandom(&mut own[..], GetRandomFlags::empty()) {
            Ok(filled) if filled == own.len() => {}
            _ => return Err(HelperError::Lost(io::Error::other("no random bytes"))),
        }
        let agent = Nonce(own);
        let hello = Hello::with_key(KeyStep::Nonce(agent));
        let Challenge { nonce, proof } =
            match self.exchange(&hello_request(hello), greeting).await? {
                Outcome::Challenge(challenge) => challenge,
                Outcome::Refused(refused) if refused.reason == Refusal::Version => {
                    return Err(HelperError::Refused(refused));
                }
                _ => return Err(HelperError::Foreign("another answer than a challenge".into())),
            };
        let transcript = Transcript { port, agent, helper: nonce };
        if !key.verifies(Side::Helper, &transcript, &proof) {
            return Err(HelperError::Unproved);
        }
        let proof = key.prove(Side::Agent, &transcript);
        Ok(Hello::with_key(KeyStep::Proof(proof)))
    }

    /// Sends a request and reads the answer. After an error the connection cannot be used.
    pub(super) async fn exchange(
        &mut self,
        request: &Request,
        transit: Duration,
    ) -> Result<Outcome, HelperError> {
        let until = Instant::now() + request.wait + transit;
        timeout_at(until, self.exchange_unbounded(request))
            .await
            .unwrap_or(Err(HelperError::Silent))
    }

    async fn exchange_unbounded(&mut self, request: &Request) -> Result<Outcome, HelperError> {
        let bytes = frame::framed(&request.encode())
            .map_err(|_| HelperError::Foreign("a question longer than a frame".into()))?;
        self.stream.write_all(&bytes).await.map_err(HelperError::Lost)?;
        let payload = loop {
            match frame::split(&mut self.received) {
                Ok(Some(payload)) => break payload,
                Ok(None) => {}
                Err(_) => return Err(HelperError::Foreign("bytes that are no frame".into())),
            }
            match self.stream.read_buf(&mut self.received).await {
                Ok(0) if self.received.is_empty() => {
                    return Err(HelperError::Lost(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(0) => return Err(HelperError::Foreign("an answer that ends too early".into())),
                Ok(_) => {}
                Err(error) => return Err(HelperError::Lost(error)),
            }
        };
        let reply = Reply::decode(&payload)
            .map_err(|_| HelperError::Foreign("an answer that is not of the protocol".into()))?;
        if reply.id != request.id {
            return Err(HelperError::Foreign("the answer to another question".into()));
        }
        if !self.received.is_empty() {
            return Err(HelperError::Foreign("more than one answer".into()));
        }
        Ok(reply.outcome)
    }
}

async fn connect(address: &Address) -> io::Result<Box<dyn Stream>> {
    Ok(match address {
        Address::Unix(path) => Box::new(connect_to_helper(path).await?),
        Address::Vsock { cid, port } => {
            Box::new(VsockStream::connect(VsockAddr::new(*cid, *port)).await?)
        }
        Address::Hypervisor { socket, port } => Box::new(connect_through(socket, *port).await?),
    })
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

fn hello_request(hello: Hello) -> Request {
    Request { id: 0, wait: Duration::ZERO, operation: Operation::Hello(hello) }
}

#[cfg(test)]
mod tests;
