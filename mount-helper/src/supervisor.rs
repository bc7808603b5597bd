//! The first process of the helper: no capability, no privilege but the right to fork. It starts a
//! runner for each job the broker asks for, hears the signals, reaps, and ends when any part of the
//! tree has ended.
use crate::channel;
use crate::sys::{self, Fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use std::io;
use std::time::{Duration, Instant};

/// Word by which the broker asks for a runner, and by which it is answered.
pub const RUNNER_WANTED: &[u8] = b"runner";
/// Runners that live at once, whatever the broker asks for: a further one waits for the end of
/// another. Each is a process, and the broker is not trusted to count them.
pub const RUNNERS: usize = 8;
/// Word that tells the broker to finish and end.
pub const STOP: &[u8] = b"stop";

/// The supervisor's ends of the sockets, and whom it watches.
#[derive(Debug)]
pub struct Supervisor {
    /// The broker asks for runners here.
    pub jobs: OwnedFd,
    /// Open as long as the broker lives.
    pub broker_life: OwnedFd,
    /// Open as long as the directories process lives.
    pub directories_life: OwnedFd,
    /// Open as long as the opener lives.
    pub opener_life: OwnedFd,
    /// SIGTERM, SIGINT and SIGCHLD.
    pub signals: OwnedFd,
    /// Process id.
    pub broker: i32,
    /// Process id.
    pub directories: i32,
    /// Process id.
    pub opener: i32,
    /// How long the broker may take to finish what runs.
    pub grace: Duration,
    /// Runners that have not ended yet.
    pub runners: Vec<Pid>,
}

/// How the supervisor's loop came back.
#[derive(Debug)]
pub enum Turn {
    /// In the supervisor: the tree has ended, with this exit status.
    Ended(u8),
    /// In a new runner: this is its end of the job's socket.
    Runner(OwnedFd),
}

impl Supervisor {
    /// Serve until the tree ends. Returns in the runner, too.
    pub fn serve(mut self) -> io::Result<Turn> {
        let mut ending: Option<Instant> = None;
        let mut status: Option<u8> = None;
        loop {
            let wait_for = ending.map(|end| end.saturating_duration_since(Instant::now()));
            // A request that is not taken now stays in the socket.
            let wanted = if self.runners.len() < RUNNERS {
                PollFlags::IN
            } else {
                PollFlags::empty()
            };
            let (asked, part_gone, signalled) = {
                let mut watched = [
                    PollFd::new(&self.jobs, wanted),
                    PollFd::new(&self.broker_life, PollFlags::empty()),
                    PollFd::new(&self.directories_life, PollFlags::empty()),
                    PollFd::new(&self.opener_life, PollFlags::empty()),
                    PollFd::new(&self.signals, PollFlags::IN),
                ];
                let timeout = wait_for.map(|left| Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: i64::from(left.subsec_nanos()),
                });
                match poll(&mut watched, timeout.as_ref()) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
                (
                    watched[0].revents().contains(PollFlags::IN),
                    // A broker that lets go of the one socket and keeps the other asks for nothing
                    // any more.
                    watched[0].revents().contains(PollFlags::HUP)
                        || watched[1..4].iter().any(|one| !one.revents().is_empty()),
                    !watched[4].revents().is_empty(),
                )
            };
            if asked && let Some(socket) = self.start_runner()? {
                return Ok(Turn::Runner(socket));
            }
            if signalled {
                while let Some(signal) = sys::next_signal(&self.signals)? {
                    if signal == libc::SIGCHLD {
                        status = self.reap().or(status);
                    } else if ending.is_none() {
                        ending = Some(Instant::now() + self.grace);
                        // When it cannot be told, it is gone, and that is noticed below.
                        let _ = channel::send(&self.broker_life, STOP, &[]);
                    }
                }
            }
            let overdue = ending.is_some_and(|end| Instant::now() >= end);
            if part_gone || overdue {
                status = self.reap().or(status);
                return Ok(Turn::Ended(self.end(status, ending.is_some() && !overdue)));
            }
        }
    }

    /// One runner, and its other end to the broker. Some in the new process.
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
            // A broker that cannot be answered is gone, which is noticed elsewhere.
            Ok(Fork::Parent(pid)) => {
                self.runners.extend(Pid::from_raw(pid));
                let _ = channel::send(&self.jobs, RUNNER_WANTED, &[ours.as_fd()]);
            }
            // An answer without a descriptor: no runner.
            Err(_) => {
                let _ = channel::send(&self.jobs, RUNNER_WANTED, &[]);
            }
        }
        Ok(None)
    }

    /// Collect every child that has ended; the status of the broker or of another part, if it was
    /// one.
    fn reap(&mut self) -> Option<u8> {
        let mut status = None;
        while let Ok(Some((pid, how))) = wait(WaitOptions::NOHANG) {
            self.runners.retain(|runner| *runner != pid);
            let pid = pid.as_raw_nonzero().get();
            // The other parts end because the broker did, never the other way round with status 0.
            let part = pid == self.directories || pid == self.opener;
            if pid == self.broker || (part && code(how) != 0) {
                status = status.or(Some(code(how)));
            }
        }
        status
    }

    /// A part did not come up: end the rest; the exit status.
    pub fn abandon(mut self) -> u8 {
        let status = self.reap();
        self.end(status, false)
    }

    /// Nothing of the tree is left behind: closing the sockets ends each part, and each part is
    /// waited for.
    fn end(self, status: Option<u8>, asked: bool) -> u8 {
        let Self {
            jobs,
            broker_life,
            directories_life,
            opener_life,
            broker,
            directories,
            opener,
            mut runners,
            ..
        } = self;
        drop((jobs, broker_life, directories_life, opener_life));
        let mut status = status;
        let start = Instant::now();
        loop {
            // A runner ends with its broker; one that does not is ended, and its tool with it.
            if start.elapsed() > Duration::from_secs(1) {
                runners.drain(..).for_each(kill);
            }
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, how))) => {
                    runners.retain(|runner| *runner != pid);
                    let pid = pid.as_raw_nonzero().get();
                    let part = pid == directories || pid == opener;
                    if pid == broker || (part && code(how) != 0) {
                        status = status.or(Some(code(how)));
                    }
                }
                Ok(None) if start.elapsed() < Duration::from_secs(5) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                // No child is left, or one that does not go although everything it waits for is
                // closed.
                _ => break,
            }
        }
        match status {
            Some(0) | None if asked => 0,
            Some(0) | None => 1,
            Some(code) => code,
        }
    }
}

/// Exit status of a child as this process passes it on.
fn code(how: WaitStatus) -> u8 {
    how.exit_status()
        .map_or(1, |status| u8::try_from(status).unwrap_or(1))
}

/// End a runner or tool that does not end by itself.
pub fn kill(pid: Pid) {
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}
