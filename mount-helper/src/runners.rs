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

/// Runners that may wait for a disk which is still being looked at.
const WAITING: usize = 4;

/// Word that brings a runner its disk.
pub const DISK_IS_HERE: &[u8] = b"disk";

/// The socket to the supervisor.
#[derive(Debug)]
pub struct Runners {
    supervisor: Mutex<OwnedFd>,
    places: Places,
    waiting: Places,
}

/// So many may do something at once.
#[derive(Debug)]
struct Places {
    free: Mutex<usize>,
    given_back: Condvar,
}

/// One of them, until it is dropped.
#[derive(Debug)]
struct Place<'r>(&'r Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}

impl Places {
    fn new(number: usize) -> Self {
        Self {
            free: Mutex::new(number),
            given_back: Condvar::new(),
        }
    }

    fn take(&self) -> Place<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self
                .given_back
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Place(self)
    }

    fn take_now(&self) -> Option<Place<'_>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = free.checked_sub(1)?;
        Some(Place(self))
    }
}

/// A runner that has its job and waits for the disk. Its tool is confined, and starts when the disk has come; when this is dropped, it
/// never does.
#[derive(Debug)]
pub struct Waiting<'r> {
    runners: &'r Runners,
    socket: OwnedFd,
    _place: Option<Place<'r>>,
}

impl Waiting<'_> {
    /// Hand over a claimed disk and wait for the tool's end. A runner that is lost is an error: whether the tool did its work is then
    /// unknown, and the disk is looked at again before anything else happens.
    pub fn go(self, disk: &OwnedFd, deadline: Duration) -> io::Result<Report> {
        let _place = self.runners.places.take();
        match channel::send(&self.socket, DISK_IS_HERE, &[disk.as_fd()]) {
            // It has ended before: its report says why.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
        if !readable(&self.socket, deadline + PATIENCE)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (answer, _) = channel::receive(&self.socket)?;
        Report::decode(&answer).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Runners {
    /// Ask the supervisor at the other end of `socket`.
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            supervisor: Mutex::new(socket),
            places: Places::new(TOOLS),
            waiting: Places::new(WAITING),
        }
    }

    /// Run one job on a claimed disk; see [`Waiting::go`].
    pub fn run(&self, job: &Job, disk: &OwnedFd, deadline: Duration) -> io::Result<Report> {
        self.start(job, None)?.go(disk, deadline)
    }

    /// Start a runner for a job that may be wanted: its start takes as long as the look at a disk. None when there is none to spare.
    pub fn start_early(&self, job: &Job) -> Option<Waiting<'_>> {
        let place = self.waiting.take_now()?;
        // What prevents it prevents the run, too, which tells.
        self.start(job, Some(place)).ok()
    }

    fn start<'r>(&'r self, job: &Job, place: Option<Place<'r>>) -> io::Result<Waiting<'r>> {
        let socket = self.take()?;
        channel::send(&socket, &job.encode(), &[])?;
        Ok(Waiting {
            runners: self,
            socket,
            _place: place,
        })
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
