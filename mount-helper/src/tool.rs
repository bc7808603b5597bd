//! Runs one program of the policy's table on one disk, and stays in charge of it until it has ended.
//!
//! The program names the disk `/proc/self/fd/3`. Its opens are put to this process, which answers that one name with
//! the very descriptor that was identified and claimed; the tool needs no right on any device node.
use crate::channel;
use crate::fault_point;
use crate::job::{End, Report, TAIL};
use crate::supervisor::kill;
use crate::sys::{self, Fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};
use std::ffi::CString;
use std::io;
use std::time::{Duration, Instant};

/// Name under which a tool finds the disk.
pub const DISK: &str = "/proc/self/fd/3";
const DISK_NUMBER: i32 = 3;
/// Exit status of a child that could not become the tool.
const NOT_BECOME: i32 = 126;

/// What is run.
#[derive(Debug)]
pub struct Program {
    /// Absolute path.
    pub path: CString,
    /// All arguments, the program's name first.
    pub arguments: Vec<CString>,
    /// Whole environment.
    pub environment: Vec<CString>,
    /// How long it may run.
    pub deadline: Duration,
}

/// Run `program` on `disk`. `confine` makes the child what the policy says a tool is, in two steps: what needs opens,
/// then what forbids calls. The run ends early when `watched` is closed at its other end.
pub fn run(
    program: &Program,
    disk: &OwnedFd,
    watched: &OwnedFd,
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
            let error = become_tool(
                program,
                disk,
                &input,
                &output_end,
                theirs,
                parent,
                restrict,
                filter,
            );
            let _ = rustix::io::write(
                &failure_end,
                &error.raw_os_error().unwrap_or(0).to_le_bytes(),
            );
            std::process::exit(NOT_BECOME);
        }
        Fork::Parent(pid) => Pid::from_raw(pid).ok_or(io::ErrorKind::Other)?,
    };
    drop((theirs, output_end, failure_end, input));
    let outcome = attend(program, disk, watched, child, &ours, &output);
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

#[allow(clippy::too_many_arguments)] // Everything that a child takes over from its parent.
fn become_tool(
    program: &Program,
    disk: &OwnedFd,
    input: &OwnedFd,
    output: &OwnedFd,
    listener_goes_to: OwnedFd,
    parent: i32,
    restrict: impl FnOnce() -> io::Result<()>,
    filter: impl FnOnce() -> io::Result<()>,
) -> io::Error {
    let steps = || -> io::Result<()> {
        sys::default_signals();
        // Out of the way of the numbers that are placed now.
        let socket = sys::copy_above(&listener_goes_to, 10)?;
        let disk = sys::copy_above(disk, 10)?;
        let input = sys::copy_above(input, 10)?;
        let output = sys::copy_above(output, 10)?;
        sys::place_descriptor(&input, 0)?;
        sys::place_descriptor(&output, 1)?;
        sys::place_descriptor(&output, 2)?;
        sys::place_descriptor(&disk, DISK_NUMBER)?;
        sys::close_on_exec_from(4)?;
        rustix::process::chdir("/")?;
        restrict()?;
        sys::die_with_parent(parent)?;
        let listener = sys::listen_for_opens()?;
        channel::send(&socket, b"l", &[listener.as_fd()])?;
        drop(listener);
        filter()
    };
    match steps() {
        Ok(()) => sys::exec(&program.path, &program.arguments, &program.environment),
        Err(e) => e,
    }
}

fn attend(
    program: &Program,
    disk: &OwnedFd,
    watched: &OwnedFd,
    child: Pid,
    listener_comes_from: &OwnedFd,
    output: &OwnedFd,
) -> io::Result<Report> {
    let process = pidfd_open(child, PidfdFlags::empty())?;
    let end = Instant::now() + program.deadline;
    let mut listener: Option<OwnedFd> = None;
    let mut listening = true;
    let mut reading = true;
    let mut tail = Vec::new();
    let mut killed = None;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() && killed.is_none() {
            kill(child);
            killed = Some(End::Deadline);
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let timeout = if killed.is_some() {
            None
        } else {
            Some(&timeout)
        };
        let nothing = PollFlags::empty();
        let input = |wanted: bool| if wanted { PollFlags::IN } else { nothing };
        let questions = listener.as_ref().unwrap_or(listener_comes_from);
        let (ended, gone, printed, asked) = {
            let mut fds = vec![
                PollFd::new(&process, PollFlags::IN),
                PollFd::new(watched, nothing),
            ];
            if reading {
                fds.push(PollFd::new(output, PollFlags::IN));
            }
            if listening {
                fds.push(PollFd::new(questions, input(true)));
            }
            match poll(&mut fds, timeout) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
            (
                ready(0),
                ready(1),
                reading && ready(2),
                listening.then(|| fds.last().map(PollFd::revents)).flatten(),
            )
        };
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
        if let Some(flags) = asked.filter(|flags| !flags.is_empty()) {
            if flags.contains(PollFlags::IN) {
                match &listener {
                    None => {
                        let (_, mut descriptors) = channel::receive(listener_comes_from)?;
                        listener = descriptors.pop();
                        listener.iter().for_each(sys::wake_in_step);
                        listening = listener.is_some();
                        fault_point::reached("tool-started");
                    }
                    Some(listener) => answer(listener, disk)?,
                }
            } else {
                listening = false;
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

/// One open of the tool: the disk's name gets the disk, every other one goes on under the tool's own restrictions.
/// Nothing is decided by what is read here: a tool that changes the name meanwhile gets what it may open anyway.
fn answer(listener: &OwnedFd, disk: &OwnedFd) -> io::Result<()> {
    let Some(asked) = sys::next_open(listener)? else {
        return Ok(());
    };
    let mut name = [0_u8; DISK.len() + 1];
    let is_disk = sys::read_memory(asked.pid, asked.path_address, &mut name)
        .is_ok_and(|length| length == name.len() && name[..DISK.len()] == *DISK.as_bytes())
        && name[DISK.len()] == 0;
    if is_disk {
        sys::answer_open_with(listener, asked.id, disk.as_fd())
    } else {
        sys::let_open_go_on(listener, asked.id)
    }
}
