//! Runs one program of the policy's table on one disk, and controls it until it has ended.
//!
//! The program names the disk `/proc/self/fd/3`. The kernel sends the program's opens to this
//! process, which answers that one name with the same descriptor that was identified and claimed;
//! the tool needs no right on any device node.
//!
//! The child confines itself before it has the disk, and its first open requests the disk. When the
//! broker has sent the disk, the answer places the disk at number 3, and the child executes the
//! program.
use crate::channel;
use crate::fault_point;
use crate::sys::{self, Fork, OpenNotification};
use crate::tool::DISK_MESSAGE;
use crate::tool::report::{End, Report, TAIL};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, IntoRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, waitpid};
use std::ffi::CString;
use std::io;
use std::time::{Duration, Instant};

/// Path by which a tool opens the disk.
pub(crate) const DISK: &str = "/proc/self/fd/3";
const DISK_NUMBER: i32 = 3;
/// Exit status of a child that could not execute the tool.
const EXEC_FAILED: i32 = 126;

/// The program to run.
#[derive(Debug)]
pub(crate) struct Program {
    /// Absolute path.
    pub(crate) path: CString,
    /// All arguments, the program's name first.
    pub(crate) arguments: Vec<CString>,
    /// The whole environment.
    pub(crate) environment: Vec<CString>,
    /// How long the program may run.
    pub(crate) deadline: Duration,
}

/// Runs `program` on the disk that comes from `broker`. The child confines itself as the policy
/// says, in two steps: `restrict` does what needs to open files, then `filter` forbids system
/// calls. The run ends early when the other end of `broker` is closed.
pub(crate) fn run(
    program: &Program,
    broker: &OwnedFd,
    restrict: impl FnOnce() -> io::Result<()>,
    filter: impl FnOnce() -> io::Result<()>,
) -> io::Result<Report> {
    let (output, output_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (failure, failure_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (input, input_end) = pipe_with(PipeFlags::CLOEXEC)?;
    drop(input_end);
    let (ours, theirs) = channel::pair()?;
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    let child = match sys::fork()? {
        Fork::Child => {
            drop(ours);
            let ends =
                Ends { input, output: output_end, failure: failure_end, listener_sender: theirs };
            become_tool(program, &ends, parent, restrict, filter);
            std::process::exit(EXEC_FAILED);
        }
        Fork::Parent(pid) => Pid::from_raw(pid).ok_or(io::ErrorKind::Other)?,
    };
    drop((theirs, output_end, failure_end, input));
    let outcome = supervise(program, broker, child, &ours, &output);
    if outcome.is_err() {
        kill(child);
        let _ = waitpid(Some(child), WaitOptions::empty());
    }
    let mut report = outcome?;
    let mut errno = [0_u8; 4];
    if rustix::io::read(&failure, &mut errno) == Ok(4) {
        report.end = End::NotRun(i32::from_le_bytes(errno));
    }
    Ok(report)
}

/// What a child takes over from its parent.
struct Ends {
    input: OwnedFd,
    output: OwnedFd,
    failure: OwnedFd,
    listener_sender: OwnedFd,
}

/// Executes the program. Returns only when a step before or the exec itself failed.
fn become_tool(
    program: &Program,
    ends: &Ends,
    parent: i32,
    restrict: impl FnOnce() -> io::Result<()>,
    filter: impl FnOnce() -> io::Result<()>,
) {
    // Above the numbers that are assigned below: what is written to this pipe must not go to the
    // disk.
    let Ok(failure) = sys::copy_above(&ends.failure, 10) else {
        return;
    };
    let steps = || -> io::Result<()> {
        sys::default_signals();
        let socket = sys::copy_above(&ends.listener_sender, 10)?;
        let input = sys::copy_above(&ends.input, 10)?;
        let output = sys::copy_above(&ends.output, 10)?;
        sys::place_descriptor(&input, 0)?;
        sys::place_descriptor(&output, 1)?;
        sys::place_descriptor(&output, 2)?;
        sys::close_on_exec_from(3)?;
        rustix::process::chdir("/")?;
        restrict()?;
        sys::die_with_parent(parent)?;
        let listener = sys::listen_for_opens()?;
        channel::send(&socket, b"l", &[listener.as_fd()])?;
        drop(listener);
        filter()?;
        // The open is answered when the broker has sent the disk.
        let disk = rustix::fs::open(DISK, OFlags::RDWR, Mode::empty())?.into_raw_fd();
        if disk != DISK_NUMBER {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Err(sys::exec(&program.path, &program.arguments, &program.environment))
    };
    let errno = steps().err().and_then(|e| e.raw_os_error()).unwrap_or(0);
    let _ = rustix::io::write(&failure, &errno.to_le_bytes());
}

/// The first open of a child, by which it requests the disk.
enum FirstOpen {
    /// The child has not called it.
    Awaited,
    /// The child has called it and waits.
    Requested(OpenNotification),
    /// The child has the disk.
    Answered,
}

fn supervise(
    program: &Program,
    broker: &OwnedFd,
    child: Pid,
    listener_receiver: &OwnedFd,
    output: &OwnedFd,
) -> io::Result<Report> {
    let process = pidfd_open(child, PidfdFlags::empty())?;
    let mut end = Instant::now() + program.deadline;
    let mut listener: Option<OwnedFd> = None;
    let mut listening = true;
    let mut disk: Option<OwnedFd> = None;
    let mut first = FirstOpen::Awaited;
    let mut reading = true;
    let mut tail = Vec::new();
    let mut killed = None;
    loop {
        if let (Some(listener), FirstOpen::Requested(open), Some(disk)) = (&listener, &first, &disk)
        {
            sys::answer_open_with(listener, open.id, disk.as_fd(), Some(DISK_NUMBER))?;
            first = FirstOpen::Answered;
            fault_point::reached("tool-started");
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() && killed.is_none() {
            kill(child);
            killed = Some(End::Deadline);
        }
        let timeout = killed.is_none().then(|| sys::timespec(left));
        let wanted = |yes: bool| {
            if yes { PollFlags::IN } else { PollFlags::empty() }
        };
        let questions = listener.as_ref().unwrap_or(listener_receiver);
        // A child that has requested the disk makes no other call until it has the disk.
        let listening_now = listening && !matches!(first, FirstOpen::Requested(_));
        let (ended, broker_events, printed, notified) = {
            let mut fds = vec![
                PollFd::new(&process, PollFlags::IN),
                PollFd::new(broker, wanted(disk.is_none())),
            ];
            if reading {
                fds.push(PollFd::new(output, PollFlags::IN));
            }
            if listening_now {
                fds.push(PollFd::new(questions, wanted(true)));
            }
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            let flags = |index: usize| fds.get(index).map_or(PollFlags::empty(), PollFd::revents);
            (
                !flags(0).is_empty(),
                flags(1),
                reading && !flags(2).is_empty(),
                listening_now.then(|| fds.last().map(PollFd::revents)).flatten(),
            )
        };
        let mut gone = broker_events.intersects(PollFlags::HUP | PollFlags::ERR);
        if broker_events.contains(PollFlags::IN) && !gone {
            let (word, mut descriptors) = channel::receive(broker)?;
            match descriptors.pop() {
                Some(claimed) if word == DISK_MESSAGE => disk = Some(claimed),
                _ => gone = true,
            }
            // The time limit of the tool begins when the disk arrives.
            end = Instant::now() + program.deadline;
        }
        // The broker is gone or has given up: the tool must not go on alone.
        if gone && killed.is_none() {
            kill(child);
            killed = Some(End::Deadline);
        }
        if printed {
            let mut part = [0_u8; 1024];
            let length = rustix::io::read(output, &mut part)?;
            reading = length > 0;
            tail.extend_from_slice(&part[..length]);
            let surplus = tail.len().saturating_sub(TAIL);
            tail.drain(..surplus);
            continue;
        }
        if let Some(flags) = notified.filter(|flags| !flags.is_empty()) {
            match &listener {
                _ if !flags.contains(PollFlags::IN) => listening = false,
                None => {
                    let (_, mut descriptors) = channel::receive(listener_receiver)?;
                    listener = descriptors.pop();
                    listener.iter().for_each(sys::wake_on_same_processor);
                    listening = listener.is_some();
                }
                Some(listener) => match (&first, &disk) {
                    (FirstOpen::Answered, Some(disk)) => answer_open(listener, disk)?,
                    _ => {
                        first = sys::next_open(listener)?
                            .map_or(FirstOpen::Awaited, FirstOpen::Requested)
                    }
                },
            }
            continue;
        }
        if ended {
            break;
        }
    }
    let status = waitpid(Some(child), WaitOptions::empty())?.map(|(_, status)| status);
    let tail = String::from_utf8_lossy(&tail).trim().to_owned();
    let end = match (killed, status) {
        (Some(end), _) => end,
        (None, Some(status)) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => End::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, Some(signal)) => End::Signalled(signal),
            (None, None) => End::NotRun(0),
        },
        (None, None) => End::NotRun(0),
    };
    Ok(Report { end, tail })
}

/// Answers one open of the tool: the disk's name gets the disk, and every other open is carried out
/// under the tool's own restrictions. The name that is read here decides nothing about security: a
/// tool that changes the name meanwhile gets only what it may open anyway.
fn answer_open(listener: &OwnedFd, disk: &OwnedFd) -> io::Result<()> {
    let Some(open) = sys::next_open(listener)? else {
        return Ok(());
    };
    let mut name = [0_u8; DISK.len() + 1];
    let is_disk = sys::read_memory(open.pid, open.path_address, &mut name)
        .is_ok_and(|length| length == name.len() && name[..DISK.len()] == *DISK.as_bytes())
        && name[DISK.len()] == 0;
    if is_disk {
        sys::answer_open_with(listener, open.id, disk.as_fd(), None)
    } else {
        sys::continue_open(listener, open.id)
    }
}

/// Kills a runner or tool that does not end by itself.
pub(crate) fn kill(pid: Pid) {
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}
