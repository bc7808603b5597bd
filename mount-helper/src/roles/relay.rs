//! The process that knows the key of vsock connections. It accepts them, and hands the connection
//! of each peer that has proved the key over to the broker, which answers that peer's last Hello.
//! It reads nothing behind that Hello, and has no capability and no file.
mod key_proof;
pub(crate) mod vsock_port;

use crate::{channel, journal, sys};
use ebs_csi_wire::{Challenge, Key, Operation, Outcome, Reply, Request, frame};
use key_proof::{HelloOutcome, KeyProof};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::time::{Duration, Instant};
use vsock_port::VsockPort;

/// Largest number of peers that have not proved the key. More wait to be accepted.
const MOST_UNPROVED: usize = 16;
/// How long nobody is accepted after a peer that did not prove the key: whoever tries keys, or
/// fills the places of others, gets few attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// What the relay works with.
#[derive(Debug)]
pub(crate) struct Relay<'r> {
    ports: &'r [VsockPort],
    /// The machines that may connect.
    peers: &'r [u32],
    /// The key that a peer proves, and to which this side proves itself.
    key: &'r Key,
    /// The socket on which connections are handed over; a call does not wait for the broker.
    broker: &'r OwnedFd,
    /// Open at the other end as long as the supervisor lives.
    life: &'r OwnedFd,
    unproved: Vec<UnprovedPeer<'r>>,
    paused_until: Instant,
}

impl<'r> Relay<'r> {
    pub(crate) fn new(
        ports: &'r [VsockPort],
        peers: &'r [u32],
        key: &'r Key,
        broker: &'r OwnedFd,
        life: &'r OwnedFd,
    ) -> Self {
        let unproved = Vec::new();
        Self { ports, peers, key, broker, life, unproved, paused_until: Instant::now() }
    }

    /// Serves until the broker or the supervisor is gone. The broker of a killed supervisor may
    /// wait for a disk, and the next helper needs the ports.
    pub(crate) fn serve(mut self) -> Result<(), Errno> {
        while self.run_once()? {}
        Ok(())
    }

    /// Waits until something happens, and handles all of it; returns whether the others are there.
    fn run_once(&mut self) -> Result<bool, Errno> {
        let now = Instant::now();
        let has_room = self.unproved.len() < MOST_UNPROVED;
        let accepts = has_room && now >= self.paused_until;
        let mut end = self.unproved.iter().map(|peer| peer.proof.deadline()).min();
        if has_room && !accepts {
            end = Some(end.map_or(self.paused_until, |end| end.min(self.paused_until)));
        }
        let others = [self.broker, self.life];
        let mut fds = others.map(|other| PollFd::new(other, PollFlags::empty())).to_vec();
        fds.extend(self.unproved.iter().map(|peer| PollFd::new(&peer.socket, PollFlags::IN)));
        if accepts {
            fds.extend(self.ports.iter().map(|port| PollFd::new(port, PollFlags::IN)));
        }
        let timeout = end.map(|end| sys::timespec(end.saturating_duration_since(now)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(true),
            Err(errno) => return Err(errno),
        }
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let (of_others, of_sockets) = is_ready.split_at(2);
        if of_others.contains(&true) {
            return Ok(false);
        }
        let (of_peers, of_ports) = of_sockets.split_at(self.unproved.len());
        for (peer, is_ready) in std::mem::take(&mut self.unproved).into_iter().zip(of_peers) {
            self.handle(peer, *is_ready);
        }
        let ports = self.ports;
        for (port, _) in ports.iter().zip(of_ports).filter(|(_, is_ready)| **is_ready) {
            self.accept(port);
        }
        Ok(true)
    }

    fn handle(&mut self, mut peer: UnprovedPeer<'r>, is_ready: bool) {
        let next = if is_ready { peer.receive() } else { Next::Wait };
        match next {
            Next::Wait if peer.proof.deadline() > Instant::now() => self.unproved.push(peer),
            Next::Wait => self.cut_off("no proof of the key in time"),
            Next::HandOver(hello) => {
                let message = hello.to_le_bytes();
                // The socket holds dozens of connections, for which the broker has no room yet; a
                // further one is closed. The end of the broker shows at the next poll.
                if let Err(why) = channel::send(self.broker, &message, &[peer.socket.as_fd()]) {
                    journal::warn("hand-over", &[("why", &why.to_string())]);
                }
            }
            Next::Close => self.pause(),
            Next::CutOff(why) => self.cut_off(&why),
        }
    }

    fn accept(&mut self, port: &'r VsockPort) {
        while self.unproved.len() < MOST_UNPROVED && self.paused_until <= Instant::now() {
            match port.accept(self.peers) {
                Ok(Some(socket)) => {
                    let proof = KeyProof::new(self.key, port.number);
                    self.unproved.push(UnprovedPeer { socket, proof, received: Vec::new() });
                }
                Ok(None) => self.pause(),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    journal::warn("accept", &[("why", &errno.to_string())]);
                    self.pause();
                }
            }
        }
    }

    fn cut_off(&mut self, why: &str) {
        journal::warn("peer-cut-off", &[("why", why)]);
        self.pause();
    }

    fn pause(&mut self) {
        self.paused_until = Instant::now() + PAUSE;
    }
}

/// A connection whose peer has not proved the key yet.
#[derive(Debug)]
struct UnprovedPeer<'r> {
    socket: OwnedFd,
    proof: KeyProof<'r>,
    received: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    /// The peer has proved the key, and the broker answers its Hello of this number.
    HandOver(u64),
    Close,
    CutOff(String),
}

impl UnprovedPeer<'_> {
    /// Reads what has arrived, up to the end of the Hello that proves the key.
    fn receive(&mut self) -> Next {
        loop {
            let mut part = [0; 512];
            // What follows the frame is for the broker, and stays in the socket.
            let missing = frame::missing(&self.received).unwrap_or(0).min(part.len());
            match recv(&self.socket, &mut part[..missing], RecvFlags::DONTWAIT) {
                Ok((0, _)) if self.received.is_empty() => return Next::Close,
                Ok((0, _)) => return Next::CutOff("the stream ended inside a frame".to_owned()),
                Ok((length, _)) => self.received.extend_from_slice(&part[..length]),
                Err(Errno::AGAIN) => return Next::Wait,
                Err(Errno::INTR) => continue,
                Err(_) => return Next::Close,
            }
            let next = match frame::split(&mut self.received) {
                Ok(None) => Next::Wait,
                Ok(Some(payload)) => self.handle_request(&payload),
                Err(why) => Next::CutOff(why.to_string()),
            };
            if next != Next::Wait {
                return next;
            }
        }
    }

    fn handle_request(&mut self, payload: &[u8]) -> Next {
        let (id, hello) = match Request::decode(payload) {
            Ok(Request { id, operation: Operation::Hello(hello), .. }) => (id, hello),
            Ok(_) => return Next::CutOff("a request before hello".to_owned()),
            Err(why) => return Next::CutOff(why.to_string()),
        };
        match self.proof.receive_hello(hello) {
            Ok(HelloOutcome::Proved) => Next::HandOver(id),
            Ok(HelloOutcome::Challenge(challenge)) => self.send(id, challenge),
            Err(why) => Next::CutOff(why.to_owned()),
        }
    }

    /// Sends the challenge, which fits the buffer of a new connection.
    fn send(&self, id: u64, challenge: Challenge) -> Next {
        let reply = Reply { id, outcome: Outcome::Challenge(challenge) };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match frame::framed(&reply.encode()) {
            Ok(bytes) if send(&self.socket, &bytes, flags) == Ok(bytes.len()) => Next::Wait,
            _ => Next::Close,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_wire::{Hello, KeyStep, Nonce, Side, Transcript};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    const PORT: u32 = 5000;
    const AGENT: Nonce = Nonce([1; 32]);

    fn key() -> Key {
        Key::new(&[7; 32]).expect("a key")
    }

    fn hello(id: u64, step: KeyStep) -> Vec<u8> {
        let operation = Operation::Hello(Hello::with_key(step));
        let request = Request { id, wait: Duration::ZERO, operation };
        frame::framed(&request.encode()).expect("a frame")
    }

    fn streams() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).expect("pair")
    }

    fn read(socket: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; frame::MAX_FRAME];
        let length = rustix::io::read(socket, &mut bytes).expect("read");
        bytes.truncate(length);
        bytes
    }

    /// Sends the nonce of an agent, and returns the agent's proof.
    fn proof(agent: &OwnedFd, peer: &mut UnprovedPeer<'_>) -> KeyStep {
        let first = hello(1, KeyStep::Nonce(AGENT));
        let (start, rest) = first.split_at(9);
        for part in [start, rest] {
            send(agent, part, SendFlags::empty()).expect("send");
            assert_eq!(peer.receive(), Next::Wait);
        }
        let payload = frame::split(&mut read(agent)).expect("a frame").expect("whole");
        let Outcome::Challenge(challenge) = Reply::decode(&payload).expect("a reply").outcome
        else {
            panic!("no challenge");
        };
        let said = Transcript { port: PORT, agent: AGENT, helper: challenge.nonce };
        assert!(key().verifies(Side::Helper, &said, &challenge.proof));
        KeyStep::Proof(key().prove(Side::Agent, &said))
    }

    #[test]
    fn bytes_after_the_proof_stay_unread() {
        let (agent, socket) = streams();
        let key = key();
        let proof_of_key = KeyProof::new(&key, PORT);
        let mut peer = UnprovedPeer { socket, proof: proof_of_key, received: Vec::new() };
        let last = hello(7, proof(&agent, &mut peer));
        send(&agent, &[&last[..], b"next"].concat(), SendFlags::empty()).expect("send");
        assert_eq!(peer.receive(), Next::HandOver(7));
        assert_eq!(read(&peer.socket), b"next");
    }

    #[test]
    fn proved_peer_is_handed_over_others_closed() {
        let key = key();
        let (broker, relays_end) = channel::pair().expect("pair");
        let (_supervisor, life) = channel::pair().expect("pair");
        let mut relay = Relay::new(&[], &[], &key, &relays_end, &life);
        let (proved, socket) = streams();
        let proof_of_key = KeyProof::new(&key, PORT);
        let mut peer = UnprovedPeer { socket, proof: proof_of_key, received: Vec::new() };
        let last = hello(9, proof(&proved, &mut peer));
        send(&proved, &last, SendFlags::empty()).expect("send");
        relay.unproved.push(peer);
        let (wrong, socket) = streams();
        let proof_of_key = KeyProof::new(&key, PORT);
        relay.unproved.push(UnprovedPeer { socket, proof: proof_of_key, received: Vec::new() });
        send(&wrong, &[0xff; 9], SendFlags::empty()).expect("send");
        assert_eq!(relay.run_once(), Ok(true));
        let (message, descriptors) = channel::receive(&broker).expect("handed over");
        assert_eq!((message.as_slice(), descriptors.len()), (&9_u64.to_le_bytes()[..], 1));
        assert!(relay.unproved.is_empty() && relay.paused_until > Instant::now());
        // The connection that was handed over is the proved one, and the other is closed.
        send(&proved, b"next", SendFlags::empty()).expect("send");
        assert_eq!(read(&descriptors[0]), b"next");
        let end = recv(&wrong, &mut [0; 1][..], RecvFlags::empty());
        assert!(matches!(end, Ok((0, _)) | Err(Errno::CONNRESET)), "{end:?}");
        drop(broker);
        assert_eq!(relay.run_once(), Ok(false));
    }
}
