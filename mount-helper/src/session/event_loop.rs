//! The thread that serves the sockets: all connections at once, so that a connection that is silent
//! or waits does not delay the others.
use crate::journal;
use crate::session::broker_state::BrokerState;
use crate::session::connection::{Connection, Next};
use crate::session::listener::Listener;
use ebs_csi_wire::frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Largest number of connections. The node-agent limits its own number below this.
const MOST: usize = 256;
/// Number of new connections that are accepted before the existing ones are served again.
const AT_ONCE: usize = 16;
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Largest number of connections over vsock whose peers have not proved the key. More wait to be
/// accepted, so that they take no place of an agent.
const UNPROVED: usize = 16;
/// How often the journal reports suppressed lines.
const TELL: Duration = Duration::from_secs(5);

/// Serves all connections; returns the error that ends this.
pub(crate) fn serve(broker: &BrokerState, listeners: &[Listener]) -> Errno {
    for listener in listeners {
        if let Err(errno) = listener.do_not_block() {
            return errno;
        }
    }
    let doors = listeners.iter().map(|listener| Door { listener, opens_at: Instant::now() });
    let mut event_loop = EventLoop {
        broker,
        doors: doors.collect(),
        connections: BTreeMap::new(),
        next: 0,
        tells_at: Instant::now() + TELL,
        room: vec![0; frame::PREFIX + frame::MAX_FRAME],
    };
    loop {
        if let Err(errno) = event_loop.turn() {
            return errno;
        }
    }
}

/// A listener, and from when on it accepts connections.
struct Door<'b> {
    listener: &'b Listener,
    opens_at: Instant,
}

/// The events that the kernel reports for the connections, by number, and the doors at which a new
/// connection waits, by index.
type Reported = (Vec<(u64, PollFlags)>, Vec<usize>);

struct EventLoop<'b> {
    broker: &'b BrokerState,
    doors: Vec<Door<'b>>,
    /// Keyed by the connection's number; no number is used twice.
    connections: BTreeMap<u64, Connection<'b>>,
    next: u64,
    tells_at: Instant,
    room: Vec<u8>,
}

impl<'b> EventLoop<'b> {
    /// Waits until something happens, and handles all of it.
    fn turn(&mut self) -> Result<(), Errno> {
        let (told, called) = self.wait()?;
        self.broker.table.wake_event().reset();
        for (asker, outcome) in self.broker.table.answers() {
            if let Some(connection) = self.connections.get_mut(&asker.connection)
                && connection.answer(asker, outcome) == Next::Ends
            {
                self.remove(asker.connection);
            }
        }
        for (number, flags) in told {
            if let Some(connection) = self.connections.get_mut(&number)
                && connection.ready(flags, &mut self.room) == Next::Ends
            {
                self.remove(number);
            }
        }
        let now = Instant::now();
        let mut unproved = false;
        self.connections.retain(|_, connection| {
            let goes_on = connection.deadline().is_none_or(|end| end > now)
                || connection.overdue() == Next::Goes;
            unproved |= !goes_on && connection.owes_proof();
            goes_on
        });
        if unproved {
            self.slow_down();
        }
        for index in called {
            self.accept(index);
        }
        if now >= self.tells_at {
            self.tells_at = now + TELL;
            journal::tell_suppressed();
        }
        Ok(())
    }

    /// Waits for events.
    fn wait(&self) -> Result<Reported, Errno> {
        let now = Instant::now();
        let wake_event = self.broker.table.wake_event();
        let mut fds = vec![PollFd::from_borrowed_fd(wake_event.as_fd(), PollFlags::IN)];
        let mut end = self.connections.values().filter_map(Connection::deadline).min();
        let mut wake_at = |at: Instant| end = Some(end.map_or(at, |end| end.min(at)));
        if journal::suppresses() {
            wake_at(self.tells_at);
        }
        for connection in self.connections.values() {
            let (socket, flags) = connection.awaited();
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), flags));
        }
        let mut open = Vec::new();
        for (index, door) in self.doors.iter().enumerate() {
            if !self.has_room(door.listener) {
                continue;
            }
            if now < door.opens_at {
                wake_at(door.opens_at);
                continue;
            }
            open.push(index);
            fds.push(PollFd::from_borrowed_fd(door.listener.as_fd(), PollFlags::IN));
        }
        let timeout = end.map(|end| {
            let left = end.saturating_duration_since(now);
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok((Vec::new(), Vec::new())),
            Err(errno) => return Err(errno),
        }
        let mut flags = fds[1..].iter().map(PollFd::revents);
        let told = self.connections.keys().copied().zip(flags.by_ref());
        let told = told.filter(|(_, flags)| !flags.is_empty()).collect();
        let called = open.into_iter().zip(flags);
        let called = called.filter(|(_, flags)| !flags.is_empty());
        Ok((told, called.map(|(index, _)| index).collect()))
    }

    fn has_room(&self, listener: &Listener) -> bool {
        let unproved = |connection: &&Connection<'_>| connection.owes_proof();
        (self.connections.len() < MOST || self.silent_longest().is_some())
            && (listener.vsock.is_none()
                || self.connections.values().filter(unproved).count() < UNPROVED)
    }

    fn silent_longest(&self) -> Option<u64> {
        let silent = self
            .connections
            .iter()
            .filter_map(|(number, connection)| Some((connection.silent_since()?, *number)));
        silent.min().map(|(_, number)| number)
    }

    /// Removes a connection that has ended.
    fn remove(&mut self, number: u64) {
        let removed = self.connections.remove(&number);
        if removed.is_some_and(|connection| connection.owes_proof()) {
            self.slow_down();
        }
    }

    /// Lets the next peers over vsock wait, because one of them did not prove the key: whoever
    /// tries keys, or fills the places of others, gets few attempts.
    fn slow_down(&mut self) {
        let opens_at = Instant::now() + PAUSE;
        for door in &mut self.doors {
            if door.listener.vsock.is_some() {
                door.opens_at = opens_at;
            }
        }
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..AT_ONCE {
            let listener = self.doors[index].listener;
            if !self.has_room(listener) {
                return;
            }
            match listener.accept(self.broker.peer_uid) {
                Ok(Some(socket)) => self.take_in(socket, listener),
                Ok(None) if listener.vsock.is_some() => return self.slow_down(),
                Ok(None) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    journal::warn("accept", &[("why", &errno.to_string())]);
                    self.doors[index].opens_at = Instant::now() + PAUSE;
                    return;
                }
            }
        }
    }

    fn take_in(&mut self, socket: OwnedFd, listener: &'b Listener) {
        // The connection that has been silent for the longest is closed; an agent connects again
        // when it has a request.
        if self.connections.len() >= MOST
            && let Some(number) = self.silent_longest()
        {
            self.connections.remove(&number);
        }
        let vsock = listener.vsock.as_ref();
        let connection = Connection::new(self.broker, self.next, socket, vsock);
        self.connections.insert(self.next, connection);
        self.next += 1;
    }
}
