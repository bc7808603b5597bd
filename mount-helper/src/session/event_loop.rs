//! The thread that serves the sockets: all connections at once, so that a connection that is silent
//! or waits does not delay the others.
use crate::session::BrokerState;
use crate::session::connection::{Connection, Next};
use crate::session::listener::{Listener, NewConnection};
use crate::{journal, sys};
use ebs_csi_wire::frame;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Largest number of connections over unix sockets, and of those that the relay hands over: a relay
/// takes no place of the others. The node-agent limits its own number below this.
const MOST_CONNECTIONS: usize = 256;
/// Number of new connections that are accepted before the existing ones are served again.
const MOST_ACCEPTED: usize = 16;
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn serve(broker: &BrokerState, listeners: Vec<Listener>) -> Errno {
    for listener in &listeners {
        if let Err(errno) = listener.set_nonblocking() {
            return errno;
        }
    }
    let listeners = listeners
        .into_iter()
        .map(|listener| PausableListener { listener, paused_until: Instant::now() });
    let mut event_loop = EventLoop {
        broker,
        listeners: listeners.collect(),
        connections: BTreeMap::new(),
        next: 0,
        buffer: vec![0; frame::PREFIX + frame::MAX_FRAME],
    };
    loop {
        if let Err(errno) = event_loop.run_once() {
            return errno;
        }
    }
}

/// A listener, and from when on it accepts connections.
struct PausableListener {
    listener: Listener,
    paused_until: Instant,
}

/// The events that the kernel reports for the connections, by number, and the listeners at which a
/// new connection waits, by index.
type Reported = (Vec<(u64, PollFlags)>, Vec<usize>);

struct EventLoop<'b> {
    broker: &'b BrokerState,
    listeners: Vec<PausableListener>,
    /// Keyed by the connection's number; no number is used twice.
    connections: BTreeMap<u64, Connection<'b>>,
    next: u64,
    buffer: Vec<u8>,
}

impl<'b> EventLoop<'b> {
    /// Waits until something happens, and handles all of it.
    fn run_once(&mut self) -> Result<(), Errno> {
        let (connection_events, ready_listeners) = self.wait()?;
        self.broker.table.wake_event().reset();
        for (request, outcome) in self.broker.table.answers() {
            if let Some(connection) = self.connections.get_mut(&request.connection)
                && connection.answer(request, outcome) == Next::Close
            {
                self.connections.remove(&request.connection);
            }
        }
        for (number, flags) in connection_events {
            if let Some(connection) = self.connections.get_mut(&number)
                && connection.handle_events(flags, &mut self.buffer) == Next::Close
            {
                self.connections.remove(&number);
            }
        }
        let now = Instant::now();
        self.connections.retain(|_, connection| {
            connection.deadline().is_none_or(|end| end > now)
                || connection.overdue() == Next::Continue
        });
        // The last first: a removal changes the numbers of those that follow.
        for index in ready_listeners.into_iter().rev() {
            if self.accept(index) == Next::Close {
                self.listeners.remove(index);
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<Reported, Errno> {
        let now = Instant::now();
        let wake_event = self.broker.table.wake_event();
        let mut fds = vec![PollFd::from_borrowed_fd(wake_event.as_fd(), PollFlags::IN)];
        let mut end = self.connections.values().filter_map(Connection::deadline).min();
        let mut wake_at = |at: Instant| end = Some(end.map_or(at, |end| end.min(at)));
        for connection in self.connections.values() {
            let (socket, flags) = connection.awaited_events();
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), flags));
        }
        let mut open = Vec::new();
        for (index, paused) in self.listeners.iter().enumerate() {
            if !self.has_room(paused.listener.is_relay()) {
                continue;
            }
            if now < paused.paused_until {
                wake_at(paused.paused_until);
                continue;
            }
            open.push(index);
            fds.push(PollFd::from_borrowed_fd(paused.listener.as_fd(), PollFlags::IN));
        }
        let timeout = end.map(|end| sys::timespec(end.saturating_duration_since(now)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok((Vec::new(), Vec::new())),
            Err(errno) => return Err(errno),
        }
        let mut flags = fds[1..].iter().map(PollFd::revents);
        let connection_events = self.connections.keys().copied().zip(flags.by_ref());
        let connection_events = connection_events.filter(|(_, flags)| !flags.is_empty()).collect();
        let ready_listeners = open.into_iter().zip(flags);
        let ready_listeners = ready_listeners.filter(|(_, flags)| !flags.is_empty());
        Ok((connection_events, ready_listeners.map(|(index, _)| index).collect()))
    }

    /// Returns whether there is room for a connection of the relay, or of a unix socket.
    fn has_room(&self, of_relay: bool) -> bool {
        self.connections_of(of_relay).count() < MOST_CONNECTIONS
            || self.silent_longest(of_relay).is_some()
    }

    fn connections_of(&self, relay: bool) -> impl Iterator<Item = (&u64, &Connection<'b>)> {
        self.connections.iter().filter(move |(_, connection)| connection.is_relayed() == relay)
    }

    fn silent_longest(&self, of_relay: bool) -> Option<u64> {
        let silent = self
            .connections_of(of_relay)
            .filter_map(|(number, connection)| Some((connection.silent_since()?, *number)));
        silent.min().map(|(_, number)| number)
    }

    /// Accepts the connections that wait; returns whether the listener is to be closed.
    fn accept(&mut self, index: usize) -> Next {
        for _ in 0..MOST_ACCEPTED {
            let listener = &self.listeners[index].listener;
            if !self.has_room(listener.is_relay()) {
                break;
            }
            match listener.accept() {
                Ok(Some(connection)) => self.add_connection(connection),
                Ok(None) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                // The end of its socket ends the relay, and that ends the helper.
                Err(Errno::PROTO) => {
                    journal::error(
                        "relay-closed",
                        &[("why", "it ended or handed over no connection")],
                    );
                    return Next::Close;
                }
                Err(errno) => {
                    journal::warn("accept", &[("why", &errno.to_string())]);
                    self.listeners[index].paused_until = Instant::now() + PAUSE;
                    break;
                }
            }
        }
        Next::Continue
    }

    fn add_connection(&mut self, new: NewConnection) {
        // The connection that has been silent for the longest is closed; an agent connects again
        // when it has a request.
        let of_relay = new.proved_hello.is_some();
        if self.connections_of(of_relay).count() >= MOST_CONNECTIONS
            && let Some(number) = self.silent_longest(of_relay)
        {
            self.connections.remove(&number);
        }
        if let Some(connection) = Connection::new(self.broker, self.next, new) {
            self.connections.insert(self.next, connection);
        }
        self.next += 1;
    }
}
