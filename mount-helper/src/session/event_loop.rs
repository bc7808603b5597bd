//! The thread that serves the sockets: all connections at once, so that a connection that is silent
//! or waits does not delay the others.
use crate::journal;
use crate::session::broker_state::BrokerState;
use crate::session::connection::{Connection, Next};
use crate::sys;
use ebs_csi_wire::frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Largest number of connections. The node-agent limits its own number below this.
const MOST: usize = 256;
/// Number of new connections that are accepted before the existing ones are served again.
const AT_ONCE: usize = 16;
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the journal reports suppressed lines.
const TELL: Duration = Duration::from_secs(5);

/// Serves all connections; returns the error that ends this.
pub(crate) fn serve(broker: &BrokerState, listener: &OwnedFd) -> Errno {
    let flags = fcntl_getfl(listener);
    if let Err(errno) = flags.and_then(|flags| fcntl_setfl(listener, flags | OFlags::NONBLOCK)) {
        return errno;
    }
    let mut event_loop = EventLoop {
        broker,
        listener,
        connections: BTreeMap::new(),
        next: 0,
        listens_at: Instant::now(),
        tells_at: Instant::now() + TELL,
        room: vec![0; frame::PREFIX + frame::MAX_FRAME],
    };
    loop {
        if let Err(errno) = event_loop.turn() {
            return errno;
        }
    }
}

struct EventLoop<'b> {
    broker: &'b BrokerState,
    listener: &'b OwnedFd,
    /// Keyed by the connection's number; no number is used twice.
    connections: BTreeMap<u64, Connection<'b>>,
    next: u64,
    listens_at: Instant,
    tells_at: Instant,
    room: Vec<u8>,
}

impl EventLoop<'_> {
    /// Waits until something happens, and handles all of it.
    fn turn(&mut self) -> Result<(), Errno> {
        let (told, called) = self.wait()?;
        self.broker.table.wake_event().reset();
        for (asker, outcome) in self.broker.table.answers() {
            if let Some(connection) = self.connections.get_mut(&asker.connection)
                && connection.answer(asker, outcome) == Next::Ends
            {
                self.connections.remove(&asker.connection);
            }
        }
        for (number, flags) in told {
            if let Some(connection) = self.connections.get_mut(&number)
                && connection.ready(flags, &mut self.room) == Next::Ends
            {
                self.connections.remove(&number);
            }
        }
        let now = Instant::now();
        self.connections.retain(|_, connection| {
            connection.deadline().is_none_or(|end| end > now) || connection.overdue() == Next::Goes
        });
        if called {
            self.accept();
        }
        if now >= self.tells_at {
            self.tells_at = now + TELL;
            journal::tell_suppressed();
        }
        Ok(())
    }

    /// Returns the events that the kernel reports for the connections, and whether a new connection
    /// waits.
    fn wait(&self) -> Result<(Vec<(u64, PollFlags)>, bool), Errno> {
        let now = Instant::now();
        let wake_event = self.broker.table.wake_event();
        let mut fds = vec![PollFd::from_borrowed_fd(wake_event.as_fd(), PollFlags::IN)];
        let mut end = self
            .connections
            .values()
            .filter_map(Connection::deadline)
            .min();
        let mut wake_at = |at: Instant| end = Some(end.map_or(at, |end| end.min(at)));
        if journal::suppresses() {
            wake_at(self.tells_at);
        }
        let listens = self.has_room();
        if listens && now < self.listens_at {
            wake_at(self.listens_at);
        }
        for connection in self.connections.values() {
            let (socket, flags) = connection.awaited();
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), flags));
        }
        let listens = listens && now >= self.listens_at;
        if listens {
            fds.push(PollFd::new(self.listener, PollFlags::IN));
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
            Err(Errno::INTR) => return Ok((Vec::new(), false)),
            Err(errno) => return Err(errno),
        }
        let mut flags = fds[1..].iter().map(PollFd::revents);
        let told = self.connections.keys().copied().zip(flags.by_ref());
        let told = told.filter(|(_, flags)| !flags.is_empty()).collect();
        Ok((told, flags.next().is_some_and(|flags| !flags.is_empty())))
    }

    fn has_room(&self) -> bool {
        self.connections.len() < MOST || self.silent_longest().is_some()
    }

    fn silent_longest(&self) -> Option<u64> {
        let silent = self
            .connections
            .iter()
            .filter_map(|(number, connection)| Some((connection.silent_since()?, *number)));
        silent.min().map(|(_, number)| number)
    }

    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            if !self.has_room() {
                return;
            }
            match accept_with(self.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.take_in(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    journal::warn("accept", &[("why", &errno.to_string())]);
                    self.listens_at = Instant::now() + PAUSE;
                    return;
                }
            }
        }
    }

    fn take_in(&mut self, socket: OwnedFd) {
        match sys::peer_uid(&socket) {
            Ok(uid) if uid == self.broker.peer_uid => {}
            Ok(uid) => return journal::warn("peer-refused", &[("uid", &uid.to_string())]),
            Err(e) => return journal::warn("peer-unknown", &[("why", &e.to_string())]),
        }
        // The connection that has been silent for the longest is closed; an agent connects again
        // when it has a request.
        if self.connections.len() >= MOST
            && let Some(number) = self.silent_longest()
        {
            self.connections.remove(&number);
        }
        let connection = Connection::new(self.broker, self.next, socket);
        self.connections.insert(self.next, connection);
        self.next += 1;
    }
}
