//! The first process of the helper. It has no capability and no privilege but the right to fork. It
//! starts a runner for each job that the broker asks for, receives the signals, reaps children, and
//! ends when any part of the tree has ended.
pub mod collector;

use crate::channel;
use crate::roles::runner::kill;
use crate::sys::{self, Fork};
use crate::tool::{RUNNER_WANTED, RUNNERS};
use collector::Collector;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use std::io;
use std::time::{Duration, Instant};

/// A process that lives as long as the helper.
#[derive(Debug)]
pub struct Part {
    /// Open at the other end as long as the process lives.
    pub life: OwnedFd,
    /// Its process id.
    pub pid: i32,
}

/// The supervisor's ends of the sockets, and the processes that it watches.
#[derive(Debug)]
pub struct Supervisor {
    /// The socket on which the broker asks for runners.
    pub jobs: OwnedFd,
    /// The broker.
    pub broker: Part,
    /// The directories process, the opener and, for vsock, the relay.
    pub others: Vec<Part>,
    /// The signalfd for SIGTERM, SIGINT and SIGCHLD.
    pub signals: OwnedFd,
    /// What the broker and the others write to standard error.
    pub journal: Collector,
    /// The lock that keeps other helpers from serving the kubelet root. A runner closes it when
    /// [`Supervisor::serve`] returns.
    pub lock: OwnedFd,
    /// How long the broker may take to finish running operations.
    pub grace: Duration,
    /// Runners that have not ended yet.
    pub runners: Vec<Pid>,
}

/// How the supervisor's loop returned.
#[derive(Debug)]
pub enum Turn {
    /// In the supervisor: the tree has ended, with this exit status.
    Ended(u8),
    /// In a new runner: its end of the job's socket.
    Runner(OwnedFd),
}

/// Why the supervisor's loop returned.
enum Left {
    End { status: Option<u8>, stop_requested: bool },
    InRunner(OwnedFd),
}

impl Supervisor {
    /// Serves until the tree ends. Returns in each new runner, too.
    pub fn serve(mut self) -> io::Result<Turn> {
        match self.watch() {
            Ok(Left::End { status, stop_requested }) => {
                Ok(Turn::Ended(self.end(status, stop_requested)))
            }
            Ok(Left::InRunner(socket)) => Ok(Turn::Runner(socket)),
            Err(error) => {
                self.journal.finish();
                Err(error)
            }
        }
    }

    fn watch(&mut self) -> io::Result<Left> {
        let mut ending: Option<Instant> = None;
        let mut status: Option<u8> = None;
        loop {
            let next = ending.into_iter().chain(self.journal.report_at()).min();
            let wait_for = next.map(|next| next.saturating_duration_since(Instant::now()));
            // A request that is not received now stays in the socket.
            let wanted =
                if self.runners.len() < RUNNERS { PollFlags::IN } else { PollFlags::empty() };
            let (runner_requested, part_gone, signalled, lines_wait) = {
                let mut watched = vec![
                    PollFd::new(&self.jobs, wanted),
                    PollFd::new(&self.signals, PollFlags::IN),
                ];
                let lives = self.parts().map(|part| PollFd::new(&part.life, PollFlags::empty()));
                watched.extend(lives);
                let end_of_lives = watched.len();
                watched.extend(self.journal.awaited_event());
                let timeout = wait_for.map(sys::timespec);
                match poll(&mut watched, timeout.as_ref()) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
                (
                    watched[0].revents().contains(PollFlags::IN),
                    // A broker that closes this socket and keeps the other can ask for nothing any
                    // more.
                    watched[0].revents().contains(PollFlags::HUP)
                        || watched[2..end_of_lives].iter().any(|one| !one.revents().is_empty()),
                    !watched[1].revents().is_empty(),
                    watched[end_of_lives..].iter().any(|one| !one.revents().is_empty()),
                )
            };
            if runner_requested && let Some(socket) = self.start_runner()? {
                return Ok(Left::InRunner(socket));
            }
            if lines_wait {
                self.journal.turn();
            }
            self.journal.report_when_due();
            if signalled {
                while let Some(signal) = sys::next_signal(&self.signals)? {
                    if signal == libc::SIGCHLD {
                        status = self.reap().or(status);
                    } else if ending.is_none() {
                        ending = Some(Instant::now() + self.grace);
                        // When the message cannot be sent, the broker is gone, which is noticed
                        // below.
                        let _ = channel::send(&self.broker.life, channel::STOP, &[]);
                    }
                }
            }
            let overdue = ending.is_some_and(|end| Instant::now() >= end);
            if part_gone || overdue {
                status = self.reap().or(status);
                return Ok(Left::End { status, stop_requested: ending.is_some() && !overdue });
            }
        }
    }

    /// Returns the processes that the supervisor watches, the broker first.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.broker).chain(&self.others)
    }

    /// Starts one runner and sends the broker the other end of its socket. Returns Some in the new
    /// process.
    fn start_runner(&mut self) -> io::Result<Option<OwnedFd>> {
        let (request, _) = channel::receive(&self.jobs)?;
        if request != RUNNER_WANTED {
            return Ok(None);
        }
        let (ours, theirs) = channel::pair()?;
        match sys::fork() {
            Ok(Fork::Child) => {
                sys::unblock_signals();
                return Ok(Some(theirs));
            }
            // When the answer cannot be sent, the broker is gone, which is noticed elsewhere.
            Ok(Fork::Parent(pid)) => {
                self.runners.extend(Pid::from_raw(pid));
                let _ = channel::send(&self.jobs, RUNNER_WANTED, &[ours.as_fd()]);
            }
            // An answer without a descriptor says that there is no runner.
            Err(_) => {
                let _ = channel::send(&self.jobs, RUNNER_WANTED, &[]);
            }
        }
        Ok(None)
    }

    /// Reaps every child that has ended; returns the exit status that counts, if there is one.
    fn reap(&mut self) -> Option<u8> {
        let others: Vec<i32> = self.others.iter().map(|part| part.pid).collect();
        let mut status = None;
        while let Ok(Some((pid, how))) = wait(WaitOptions::NOHANG) {
            self.runners.retain(|runner| *runner != pid);
            status = status.or(counted_status(pid, how, self.broker.pid, &others));
        }
        status
    }

    /// Ends the tree when a part did not start; returns the exit status.
    pub fn abandon(mut self) -> u8 {
        let status = self.reap();
        self.end(status, false)
    }

    /// Ends the whole tree: closing the sockets ends each part, and each part is waited for.
    fn end(self, status: Option<u8>, stop_requested: bool) -> u8 {
        let Self { jobs, broker, others, mut journal, mut runners, .. } = self;
        let Part { life, pid: broker } = broker;
        let (lives, others): (Vec<_>, Vec<_>) =
            others.into_iter().map(|part| (part.life, part.pid)).unzip();
        drop((jobs, life, lives));
        let mut status = status;
        let start = Instant::now();
        loop {
            // A runner ends with its broker. One that does not is killed, and its tool with it.
            if start.elapsed() > Duration::from_secs(1) {
                runners.drain(..).for_each(kill);
            }
            // A part that writes to a full pipe would not end.
            journal.drain();
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, how))) => {
                    runners.retain(|runner| *runner != pid);
                    status = status.or(counted_status(pid, how, broker, &others));
                }
                Ok(None) if start.elapsed() < Duration::from_secs(5) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                // No child is left, or one does not end although everything that it waits for is
                // closed.
                _ => break,
            }
        }
        journal.finish();
        match status {
            Some(0) | None if stop_requested => 0,
            Some(0) | None => 1,
            Some(code) => code,
        }
    }
}

/// Returns the exit status that this process passes on for a child that was the broker, or another
/// part that failed. The other parts end with status 0 only after the broker, so that a status of 0
/// says nothing.
fn counted_status(child: Pid, how: WaitStatus, broker: i32, others: &[i32]) -> Option<u8> {
    let child = child.as_raw_nonzero().get();
    let status = how.exit_status().map_or(1, |status| u8::try_from(status).unwrap_or(1));
    (child == broker || (others.contains(&child) && status != 0)).then_some(status)
}
