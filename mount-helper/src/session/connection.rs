//! One connection, which serves one request after the other. A peer that violates the protocol is
//! disconnected.
use crate::journal;
use crate::session::broker_state::BrokerState;
use crate::session::key_proof::{Followed, KeyProof};
use crate::session::listener::Vsock;
use crate::session::operation_table::{Asker, Caller, Submitted};
use ebs_csi_wire::{Hello, Operation, Outcome, Refusal, Reply, Request, Welcome, frame};
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::time::{Duration, Instant};

/// Longest time for a frame to become complete after its first byte, and for the peer to read a
/// reply.
const FRAME_TIME: Duration = Duration::from_secs(10);
/// Longest time that a peer waits for a reply, whatever its request says.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Shortest wait for an inventory, because a repeated request cannot join one.
const INSPECT_WAIT: Duration = Duration::from_secs(10);

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The connection goes on.
    Goes,
    /// The connection has ended or must be closed.
    Ends,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection<'b> {
    broker: &'b BrokerState,
    number: u64,
    socket: OwnedFd,
    greeted: bool,
    /// The proof that a peer over vsock still owes; None for a peer that the kernel named, and
    /// after the proof.
    owes: Option<Box<KeyProof<'b>>>,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// The request that is being carried out, and until when the peer waits for it.
    asked: Option<(u64, Instant)>,
    /// Whether the reply that is being sent is the last one.
    last: bool,
    /// When the current frame, in or out, began; or, without one, since when the peer is silent.
    since: Instant,
    _caller: Caller<'b>,
}

impl<'b> Connection<'b> {
    /// Creates a session for a peer that is permitted to send requests, over vsock once the peer
    /// has proved the key.
    pub(crate) fn new(
        broker: &'b BrokerState,
        number: u64,
        socket: OwnedFd,
        vsock: Option<&'b Vsock>,
    ) -> Self {
        Self {
            broker,
            number,
            socket,
            greeted: false,
            owes: vsock.map(|vsock| Box::new(KeyProof::new(vsock))),
            received: Vec::new(),
            unsent: Vec::new(),
            asked: None,
            last: false,
            since: Instant::now(),
            _caller: broker.table.caller(),
        }
    }

    /// Returns the events that the session waits for. poll(2) reports the end of the peer in any
    /// case.
    pub(crate) fn awaited(&self) -> (&OwnedFd, PollFlags) {
        let flags = if !self.unsent.is_empty() {
            PollFlags::OUT
        } else if self.asked.is_some() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        (&self.socket, flags)
    }

    /// Returns whether the peer has not proved the key that it has to prove.
    pub(crate) fn owes_proof(&self) -> bool {
        self.owes.is_some()
    }

    /// Returns when the next event must have happened.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let of_frame = self.deadline_of_frame();
        match &self.owes {
            Some(owed) => Some(of_frame.map_or(owed.until(), |end| end.min(owed.until()))),
            None => of_frame,
        }
    }

    fn deadline_of_frame(&self) -> Option<Instant> {
        if !self.unsent.is_empty() {
            return Some(self.since + FRAME_TIME);
        }
        match self.asked {
            Some((_, until)) => Some(until),
            None if self.received.is_empty() => None,
            None => Some(self.since + FRAME_TIME),
        }
    }

    /// Returns since when the peer has sent nothing or only a part of a frame; None while a request
    /// is being served.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        (self.asked.is_none() && self.unsent.is_empty()).then_some(self.since)
    }

    /// Handles events that the kernel has reported for the socket.
    pub(crate) fn ready(&mut self, told: PollFlags, room: &mut [u8]) -> Next {
        if !self.unsent.is_empty() {
            return match self.flush() {
                Next::Goes if self.unsent.is_empty() => self.go_on(),
                next => next,
            };
        }
        if self.asked.is_some() {
            // Nobody is there to receive the reply.
            return Next::Ends;
        }
        if !told.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            return Next::Goes;
        }
        match recv(&self.socket, &mut *room, RecvFlags::DONTWAIT) {
            Ok((0, _)) if self.received.is_empty() => Next::Ends,
            Ok((0, _)) => cut_off("the stream ended inside a frame"),
            Ok((length, _)) => {
                if self.received.is_empty() {
                    self.since = Instant::now();
                }
                self.received.extend_from_slice(&room[..length]);
                self.go_on()
            }
            Err(Errno::AGAIN | Errno::INTR) => Next::Goes,
            Err(_) => Next::Ends,
        }
    }

    /// Sends the outcome if the peer waits for it.
    pub(crate) fn answer(&mut self, asker: Asker, outcome: Outcome) -> Next {
        match self.asked {
            Some((id, _)) if id == asker.id => {
                self.asked = None;
                match self.reply(id, outcome) {
                    Next::Goes => self.go_on(),
                    Next::Ends => Next::Ends,
                }
            }
            _ => Next::Goes,
        }
    }

    /// Handles a deadline that has passed.
    pub(crate) fn overdue(&mut self) -> Next {
        if self.owes_proof() {
            return cut_off("no proof of the key in time");
        }
        if !self.unsent.is_empty() {
            return Next::Ends;
        }
        let Some((id, _)) = self.asked else {
            return cut_off("a frame that is not complete in time");
        };
        match self.broker.table.give_up(self.number) {
            Some(outcome) => {
                let connection = self.number;
                self.answer(Asker { connection, id }, outcome)
            }
            // The answer is there already and is handled next.
            None => Next::Goes,
        }
    }

    /// Serves the frames that have arrived, until one has to be waited for.
    fn go_on(&mut self) -> Next {
        while self.asked.is_none() && self.unsent.is_empty() {
            if self.last {
                return Next::Ends;
            }
            match frame::split(&mut self.received) {
                Ok(Some(payload)) => {
                    self.since = Instant::now();
                    if self.serve(&payload) == Next::Ends {
                        return Next::Ends;
                    }
                }
                Ok(None) => {
                    if self.received.is_empty() {
                        // A silent connection needs no buffer.
                        self.received = Vec::new();
                    }
                    return Next::Goes;
                }
                Err(e) => return cut_off(&e.to_string()),
            }
        }
        Next::Goes
    }

    fn serve(&mut self, payload: &[u8]) -> Next {
        let Request { id, wait, operation } = match Request::decode(payload) {
            Ok(request) => request,
            Err(e) => return cut_off(&e.to_string()),
        };
        let table = &self.broker.table;
        table.asked();
        let wait = match operation {
            Operation::Hello(theirs) if self.owes_proof() => return self.prove(id, theirs),
            Operation::Hello(theirs) if !self.greeted => {
                let outcome = greet(self.broker, theirs);
                self.greeted = matches!(outcome, Outcome::Welcome(_));
                self.last = !self.greeted;
                return self.reply(id, outcome);
            }
            // Hello is the first request, and only the first.
            Operation::Hello(_) => return cut_off("a second hello"),
            _ if !self.greeted => return cut_off("a request before hello"),
            Operation::Inspect(_) => wait.max(INSPECT_WAIT),
            _ => wait,
        };
        let connection = self.number;
        match table.submit(operation, !wait.is_zero(), Asker { connection, id }) {
            Submitted::Answer(outcome) => self.reply(id, outcome),
            Submitted::Later => {
                self.asked = Some((id, Instant::now() + wait.min(LONGEST_WAIT)));
                Next::Goes
            }
            Submitted::Closed => Next::Ends,
        }
    }

    /// Takes a Hello of a peer that has to prove the key.
    fn prove(&mut self, id: u64, theirs: Hello) -> Next {
        let followed = match &mut self.owes {
            Some(owed) => owed.take(theirs),
            None => Ok(Followed::Proved),
        };
        match followed {
            Ok(Followed::Challenge(challenge)) => self.reply(id, Outcome::Challenge(challenge)),
            Ok(Followed::Proved) => {
                self.owes = None;
                self.greeted = true;
                let welcome = welcome(self.broker, ebs_csi_wire::PROTOCOL_WITH_KEY);
                self.reply(id, welcome)
            }
            Err(why) => cut_off(why),
        }
    }

    fn reply(&mut self, id: u64, outcome: Outcome) -> Next {
        let Ok(bytes) = frame::framed(&Reply { id, outcome }.encode()) else {
            return Next::Ends;
        };
        self.unsent = bytes;
        self.since = Instant::now();
        self.flush()
    }

    fn flush(&mut self) -> Next {
        while !self.unsent.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.unsent, flags) {
                Ok(length) if length == self.unsent.len() => {
                    self.unsent = Vec::new();
                    // From here on it is the peer's turn.
                    self.since = Instant::now();
                }
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(Errno::AGAIN) => return Next::Goes,
                Err(Errno::INTR) => {}
                Err(_) => return Next::Ends,
            }
        }
        Next::Goes
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // The operation that this connection requested goes on.
        self.broker.table.give_up(self.number);
    }
}

fn cut_off(why: &str) -> Next {
    journal::warn("peer-cut-off", &[("why", why)]);
    Next::Ends
}

fn greet(broker: &BrokerState, theirs: Hello) -> Outcome {
    match Hello::OURS.common(theirs) {
        Some(version) => welcome(broker, version),
        None => Refusal::Version.into(),
    }
}

fn welcome(broker: &BrokerState, version: u32) -> Outcome {
    Outcome::Welcome(Welcome {
        version,
        release: env!("CARGO_PKG_VERSION").to_owned(),
        policy_digest: broker.digest.to_owned(),
        sandbox: broker.sandbox,
        landlock: Some(broker.landlock.into()),
    })
}
