//! The broker's way to a tool: a fresh runner for each job, asked of the supervisor.
use crate::channel;
use crate::job::{Job, Report};
use crate::supervisor::RUNNER_WANTED;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A supervisor or a runner that takes longer than this beyond a tool's own deadline is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tools that run at once. Each may take memory by the size of its disk; the rest wait for a place.
const TOOLS: usize = 4;

/// The socket to the supervisor.
#[derive(Debug)]
pub struct Runners {
    supervisor: Mutex<OwnedFd>,
    running: Mutex<usize>,
    ended: Condvar,
}

/// A place among the tools that run.
struct Place<'r>(&'r Runners);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self
            .0
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_one();
    }
}

impl Runners {
    /// Ask the supervisor at the other end of `socket`.
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            supervisor: Mutex::new(socket),
            running: Mutex::new(0),
            ended: Condvar::new(),
        }
    }

    /// Run one job on a claimed disk and wait for its end. A runner that is lost is an error: whether the tool did
    /// its work is then unknown, and the disk is looked at again before anything else happens.
    pub fn run(&self, job: &Job, disk: &OwnedFd, deadline: Duration) -> io::Result<Report> {
        let _place = self.place();
        let runner = self.take()?;
        channel::send(&runner, &job.encode(), &[disk.as_fd()])?;
        if !readable(&runner, deadline + PATIENCE)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (answer, _) = channel::receive(&runner)?;
        Report::decode(&answer).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    fn place(&self) -> Place<'_> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running >= TOOLS {
            running = self
                .ended
                .wait(running)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *running += 1;
        Place(self)
    }

    fn take(&self) -> io::Result<OwnedFd> {
        let supervisor = self
            .supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        channel::send(&*supervisor, RUNNER_WANTED, &[])?;
        if !readable(&supervisor, PATIENCE)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (_, mut descriptors) = channel::receive(&*supervisor)?;
        descriptors
            .pop()
            .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

fn readable(fd: &OwnedFd, patience: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    loop {
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
