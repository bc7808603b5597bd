//! One connection, which serves one request after the other. A peer that violates the protocol is
//! disconnected.
use crate::journal;
use crate::session::BrokerState;
use crate::session::listener::NewConnection;
use crate::session::operation_table::{Caller, RequestKey, Submitted};
use ebs_csi_wire::{Hello, Operation, Outcome, Refusal, Reply, Request, Welcome, frame};
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

/// Longest time for a frame to become complete after its first byte, and for the peer to read a
/// reply.
const FRAME_TIME: Duration = Duration::from_secs(10);
/// Longest time that a peer waits for a reply, whatever its request says.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Continue,
    Close,
}

#[derive(Debug)]
pub(crate) struct Connection<'b> {
    broker: &'b BrokerState,
    number: u64,
    socket: OwnedFd,
    greeted: bool,
    /// Whether the relay has handed the connection over.
    is_relayed: bool,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// The request that is being carried out, and until when the peer waits for it.
    current_request: Option<(u64, Instant)>,
    is_last_reply: bool,
    /// When the current frame, in or out, began; or, without one, since when the peer is silent.
    since: Instant,
    _caller: Caller<'b>,
}

impl<'b> Connection<'b> {
    /// Creates a session for a peer that is permitted to send requests; `None` when the peer is
    /// gone.
    pub(super) fn new(
        broker: &'b BrokerState,
        number: u64,
        connection: NewConnection,
    ) -> Option<Self> {
        let NewConnection { socket, proved_hello } = connection;
        let mut session = Self {
            broker,
            number,
            socket,
            greeted: proved_hello.is_some(),
            is_relayed: proved_hello.is_some(),
            received: Vec::new(),
            unsent: Vec::new(),
            current_request: None,
            is_last_reply: false,
            since: Instant::now(),
            _caller: broker.table.caller(),
        };
        let Some(id) = proved_hello else { return Some(session) };
        broker.table.note_request();
        let welcome = welcome(broker, ebs_csi_wire::PROTOCOL_WITH_KEY);
        (session.reply(id, welcome) == Next::Continue).then_some(session)
    }

    /// Returns the events that the session waits for. poll(2) reports the end of the peer in any
    /// case.
    pub(crate) fn awaited_events(&self) -> (&OwnedFd, PollFlags) {
        let flags = if !self.unsent.is_empty() {
            PollFlags::OUT
        } else if self.current_request.is_some() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        (&self.socket, flags)
    }

    pub(super) fn is_relayed(&self) -> bool {
        self.is_relayed
    }

    /// Returns when the next event must have happened.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.unsent.is_empty() {
            return Some(self.since + FRAME_TIME);
        }
        match self.current_request {
            Some((_, until)) => Some(until),
            None if self.received.is_empty() => None,
            None => Some(self.since + FRAME_TIME),
        }
    }

    /// Returns since when the peer has sent nothing or only a part of a frame; None while a request
    /// is being served.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        (self.current_request.is_none() && self.unsent.is_empty()).then_some(self.since)
    }

    pub(crate) fn handle_events(&mut self, events: PollFlags, buffer: &mut [u8]) -> Next {
        if !self.unsent.is_empty() {
            return match self.flush() {
                Next::Continue if self.unsent.is_empty() => self.serve_received(),
                next => next,
            };
        }
        if self.current_request.is_some() {
            // Nobody is there to receive the reply.
            return Next::Close;
        }
        if !events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            return Next::Continue;
        }
        let into = &mut [IoSliceMut::new(buffer)];
        let received =
            recvmsg(&self.socket, into, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT);
        match received.map(|message| message.bytes) {
            Ok(0) if self.received.is_empty() => Next::Close,
            Ok(0) => cut_off("the stream ended inside a frame"),
            Ok(length) => {
                if self.received.is_empty() {
                    self.since = Instant::now();
                }
                self.received.extend_from_slice(&buffer[..length]);
                self.serve_received()
            }
            Err(Errno::AGAIN | Errno::INTR) => Next::Continue,
            Err(_) => Next::Close,
        }
    }

    /// Sends the outcome if the peer waits for it.
    pub(crate) fn answer(&mut self, request: RequestKey, outcome: Outcome) -> Next {
        match self.current_request {
            Some((id, _)) if id == request.id => {
                self.current_request = None;
                match self.reply(id, outcome) {
                    Next::Continue => self.serve_received(),
                    Next::Close => Next::Close,
                }
            }
            _ => Next::Continue,
        }
    }

    pub(crate) fn overdue(&mut self) -> Next {
        if !self.unsent.is_empty() {
            return Next::Close;
        }
        let Some((id, _)) = self.current_request else {
            return cut_off("a frame that is not complete in time");
        };
        match self.broker.table.stop_waiting(self.number) {
            Some(outcome) => {
                let connection = self.number;
                self.answer(RequestKey { connection, id }, outcome)
            }
            // The answer is there already and is handled next.
            None => Next::Continue,
        }
    }

    /// Serves the frames that have arrived, until one has to be waited for.
    fn serve_received(&mut self) -> Next {
        while self.current_request.is_none() && self.unsent.is_empty() {
            if self.is_last_reply {
                return Next::Close;
            }
            match frame::split(&mut self.received) {
                Ok(Some(payload)) => {
                    self.since = Instant::now();
                    if self.serve(&payload) == Next::Close {
                        return Next::Close;
                    }
                }
                Ok(None) => {
                    if self.received.is_empty() {
                        // A silent connection needs no buffer.
                        self.received = Vec::new();
                    }
                    return Next::Continue;
                }
                Err(e) => return cut_off(&e.to_string()),
            }
        }
        Next::Continue
    }

    fn serve(&mut self, payload: &[u8]) -> Next {
        let Request { id, wait, operation } = match Request::decode(payload) {
            Ok(request) => request,
            Err(e) => return cut_off(&e.to_string()),
        };
        let table = &self.broker.table;
        table.note_request();
        match operation {
            Operation::Hello(theirs) if !self.greeted => {
                let outcome = greet(self.broker, theirs);
                self.greeted = matches!(outcome, Outcome::Welcome(_));
                self.is_last_reply = !self.greeted;
                return self.reply(id, outcome);
            }
            // Hello is the first request, and only the first.
            Operation::Hello(_) => return cut_off("a second hello"),
            _ if !self.greeted => return cut_off("a request before hello"),
            _ => {}
        }
        let wait = wait.max(operation.properties().least_wait);
        let connection = self.number;
        match table.submit(operation, !wait.is_zero(), RequestKey { connection, id }) {
            Submitted::Answer(outcome) => self.reply(id, outcome),
            Submitted::Later => {
                self.current_request = Some((id, Instant::now() + wait.min(LONGEST_WAIT)));
                Next::Continue
            }
            Submitted::Closed => Next::Close,
        }
    }

    fn reply(&mut self, id: u64, outcome: Outcome) -> Next {
        let Ok(bytes) = frame::framed(&Reply { id, outcome }.encode()) else {
            return Next::Close;
        };
        self.unsent = bytes;
        self.since = Instant::now();
        self.flush()
    }

    fn flush(&mut self) -> Next {
        while !self.unsent.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let bytes = &[IoSlice::new(&self.unsent)];
            match sendmsg(&self.socket, bytes, &mut SendAncillaryBuffer::default(), flags) {
                Ok(length) if length == self.unsent.len() => {
                    self.unsent = Vec::new();
                    // From here on it is the peer's turn.
                    self.since = Instant::now();
                }
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(Errno::AGAIN) => return Next::Continue,
                Err(Errno::INTR) => {}
                Err(_) => return Next::Close,
            }
        }
        Next::Continue
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // The operation that this connection requested goes on.
        self.broker.table.stop_waiting(self.number);
    }
}

fn cut_off(why: &str) -> Next {
    journal::warn("peer-cut-off", &[("why", why)]);
    Next::Close
}

fn greet(broker: &BrokerState, theirs: Hello) -> Outcome {
    match Hello::OURS.common(theirs) {
        Some(version) => welcome(broker, version),
        None => Refusal::Version.into(),
    }
}

/// Returns the settings within the bounds of the message.
fn wider_on_wire(wider: &[String]) -> Vec<String> {
    let printable = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    wider.iter().take(32).map(|one| one.chars().map(printable).take(256).collect()).collect()
}

fn welcome(broker: &BrokerState, version: u32) -> Outcome {
    Outcome::Welcome(Welcome {
        version,
        release: env!("CARGO_PKG_VERSION").to_owned(),
        policy_digest: broker.digest.clone(),
        wider: wider_on_wire(&broker.wider),
        sandbox: broker.sandbox,
        landlock: Some(broker.landlock.into()),
    })
}
