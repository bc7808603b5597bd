//! The broker's access to tools: a new runner for each job, requested from the supervisor.
use crate::tool::{DISK_MESSAGE, PlaceKind, RUNNER_WANTED, RUNNERS, Report, TOOLS, ToolPlaces};
use crate::{channel, lock};
use ebs_csi_wire::Job;
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest wait for the supervisor, and for a runner beyond its tool's own deadline. Afterwards the
/// broker regards them as lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of runners that may wait for a disk whose content is still being recognised.
const WAITING: usize = 4;

// The supervisor permits at least as many runners as may run and wait at once.
const _: () = assert!(TOOLS + WAITING <= RUNNERS);

#[derive(Debug)]
pub(crate) struct Runners {
    supervisor: OwnedFd,
    /// Locked while an answer of the supervisor is received.
    answers: Mutex<()>,
    places: Arc<ToolPlaces>,
    early: Early,
}

/// The number of runners that may still be started before it is known that they are needed.
#[derive(Debug)]
struct Early(Mutex<usize>);

/// One early start, given back when it is dropped.
#[derive(Debug)]
struct EarlyStart<'r>(&'r Early);

impl Drop for EarlyStart<'_> {
    fn drop(&mut self) {
        *lock(&self.0.0) += 1;
    }
}

impl Early {
    fn take(&self) -> Option<EarlyStart<'_>> {
        let mut free = lock(&self.0);
        *free = free.checked_sub(1)?;
        Some(EarlyStart(self))
    }
}

/// The supervisor's answer to a request.
#[derive(Debug)]
enum SupervisorAnswer {
    Awaited,
    /// The socket of a runner, to which the job was sent.
    Started(OwnedFd),
    Lost,
}

/// A runner that was requested, gets its job, confines its tool, and waits for the disk: the tool
/// starts when the disk arrives. When this is dropped first, the tool never starts.
#[derive(Debug)]
pub(crate) struct WaitingRunner<'r> {
    runners: &'r Runners,
    job: Job,
    runner: SupervisorAnswer,
    _place: Option<EarlyStart<'r>>,
}

impl WaitingRunner<'_> {
    /// Sends the runner its job if the runner is there.
    pub(crate) fn send_job_when_started(&mut self) {
        if matches!(self.runner, SupervisorAnswer::Awaited) && self.runners.has_answer() {
            // An error here also occurs when the runner is needed, and is reported then.
            let _ = self.send_job();
        }
    }

    /// Sends a claimed disk and waits for the tool's end. A lost runner is an error: whether the
    /// tool did its work is then unknown, and the disk's content is recognised again before
    /// anything else happens.
    pub(crate) fn run(mut self, disk: impl AsFd, deadline: Duration) -> io::Result<Report> {
        let socket = self.send_job()?;
        match channel::send(socket, DISK_MESSAGE, &[disk.as_fd()]) {
            // The runner has ended before: its report has the reason.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
        let (answer, _) = channel::receive_within(socket, deadline + ANSWER_TIMEOUT)?;
        Report::decode(&answer).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    fn send_job(&mut self) -> io::Result<&OwnedFd> {
        if matches!(self.runner, SupervisorAnswer::Awaited) {
            // The answer counts as taken, whatever follows.
            self.runner = SupervisorAnswer::Lost;
            let socket = self.runners.receive()?;
            channel::send(&socket, &self.job.encode(), &[])?;
            self.runner = SupervisorAnswer::Started(socket);
        }
        match &self.runner {
            SupervisorAnswer::Started(socket) => Ok(socket),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for WaitingRunner<'_> {
    fn drop(&mut self) {
        if matches!(self.runner, SupervisorAnswer::Awaited) {
            // This answer belongs to this request, and nobody else would receive it.
            let _ = self.runners.receive();
        }
    }
}

impl Runners {
    /// Uses the supervisor at the other end of `socket`.
    pub(crate) fn new(socket: OwnedFd, places: Arc<ToolPlaces>) -> Self {
        Self {
            supervisor: socket,
            answers: Mutex::new(()),
            places,
            early: Early(Mutex::new(WAITING)),
        }
    }

    /// Registers the operation on this thread as one that may run tools of a kind from now on;
    /// returns false when no place is free.
    pub(crate) fn take_place(&self, kind: PlaceKind) -> bool {
        self.places.take(kind)
    }

    /// Runs one job on a claimed disk; see [`WaitingRunner::run`].
    pub(crate) fn run(&self, job: &Job, disk: impl AsFd, deadline: Duration) -> io::Result<Report> {
        self.request_runner(job, None)?.run(disk, deadline)
    }

    /// Requests a runner for a job that may become necessary, because starting a runner takes as
    /// long as reading a disk. Returns None when no runner can be spared.
    pub(crate) fn request_early(&self, job: &Job) -> Option<WaitingRunner<'_>> {
        // A runner that could not run its tool is not started.
        let place = self.early.take().filter(|_| self.places.is_available(PlaceKind::Format))?;
        // An error here would also prevent the run, which reports it.
        self.request_runner(job, Some(place)).ok()
    }

    fn request_runner<'r>(
        &'r self,
        job: &Job,
        place: Option<EarlyStart<'r>>,
    ) -> io::Result<WaitingRunner<'r>> {
        channel::send(&self.supervisor, RUNNER_WANTED, &[])?;
        Ok(WaitingRunner {
            runners: self,
            job: job.clone(),
            runner: SupervisorAnswer::Awaited,
            _place: place,
        })
    }

    /// Returns whether an answer of the supervisor is there, unless another thread takes it first.
    fn has_answer(&self) -> bool {
        channel::is_readable(&self.supervisor, Duration::ZERO).unwrap_or(false)
    }

    /// Receives the supervisor's next answer. All runners are alike, so it does not matter whose
    /// request is answered.
    fn receive(&self) -> io::Result<OwnedFd> {
        let _one_at_a_time = lock(&self.answers);
        let (_, mut descriptors) = channel::receive_within(&self.supervisor, ANSWER_TIMEOUT)?;
        descriptors.pop().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::RunEnd;
    use ebs_csi_policy::tool::ToolId;
    use ebs_csi_wire::FsType;

    fn job() -> Job {
        Job {
            tool: ToolId::Mke2fs.number(),
            fs: FsType::Ext4,
            uuid: [1; 16],
            format: Vec::new(),
            time: 0,
            deadline: 60,
        }
    }

    /// Returns the runners and the supervisor's end of the socket.
    fn runners() -> (Runners, OwnedFd) {
        let (supervisor, broker) = channel::pair().expect("pair");
        (Runners::new(broker, Arc::default()), supervisor)
    }

    /// Answers one request as the supervisor does, and returns the runner's end.
    fn answer(supervisor: &OwnedFd) -> OwnedFd {
        let (request, _) = channel::receive(supervisor).expect("request");
        assert_eq!(request, RUNNER_WANTED);
        let (ours, theirs) = channel::pair().expect("pair");
        channel::send(supervisor, RUNNER_WANTED, &[ours.as_fd()]).expect("answer");
        theirs
    }

    #[test]
    fn runner_receives_job_first_and_disk_on_run() {
        let (runners, supervisor) = runners();
        let mut waiting = runners.request_early(&job()).expect("asked");
        waiting.send_job_when_started();
        let runner = answer(&supervisor);
        waiting.send_job_when_started();
        let (sent, descriptors) = channel::receive(&runner).expect("job");
        assert_eq!((Job::decode(&sent), descriptors.len()), (Ok(job()), 0));
        let nothing_more = channel::is_readable(&runner, Duration::ZERO);
        assert!(!nothing_more.expect("poll"), "the disk came by itself");
        let done = Report { end: RunEnd::Exited(0), tail: String::new() };
        channel::send(&runner, &done.encode(), &[]).expect("report");
        let disk = std::fs::File::open("/dev/null").expect("open");
        assert_eq!(waiting.run(&disk, ANSWER_TIMEOUT).expect("report"), done);
        let (word, descriptors) = channel::receive(&runner).expect("disk");
        assert_eq!((word.as_slice(), descriptors.len()), (DISK_MESSAGE, 1));
    }

    #[test]
    fn unwanted_runner_ends_without_job_or_stale_answer() {
        let (runners, supervisor) = runners();
        let waiting = runners.request_early(&job()).expect("asked");
        let runner = answer(&supervisor);
        drop(waiting);
        let (sent, _) = channel::receive(&runner).expect("the end");
        assert!(sent.is_empty(), "it got a job");
        assert!(!runners.has_answer());
    }

    #[test]
    fn early_runners_are_limited_until_one_is_dropped() {
        let (runners, supervisor) = runners();
        let mut all: Vec<_> =
            (0..WAITING).map(|_| runners.request_early(&job()).expect("asked")).collect();
        assert!(runners.request_early(&job()).is_none());
        let ends: Vec<_> = all.iter().map(|_| answer(&supervisor)).collect();
        all.pop();
        let again = runners.request_early(&job());
        assert!(again.is_some());
        drop((answer(&supervisor), ends));
    }
}
