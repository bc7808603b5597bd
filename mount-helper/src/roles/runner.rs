//! One job: receives it, runs its tool on one disk, controls the tool until it has ended, reports,
//! and ends. Forked from the confined supervisor, with nothing to gain.
//!
//! The tool names the disk `/proc/self/fd/3`. The kernel sends the tool's opens to the runner, and
//! the runner answers that one name with the same descriptor that was identified and claimed; the
//! tool needs no right on any device node.
//!
//! The child confines itself before it has the disk, and its first open requests the disk. When the
//! broker has sent the disk, the answer places the disk at number 3, and the child executes the
//! program.
use crate::sys::{self, Fork, OpenNotification};
use crate::tool::{self, DISK_MESSAGE, Report, RunEnd, TAIL};
use crate::{channel, fault_point};
use ebs_csi_confine::Places;
use ebs_csi_confine::tool::{self as confine, Filters};
use ebs_csi_policy::format_option::FormatOptions;
use ebs_csi_policy::profile::environment;
use ebs_csi_policy::tool::{Arguments, Tool, ToolId};
use ebs_csi_wire::Job;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, IntoRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, statx};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::ffi::CString;
use std::io;
use std::time::{Duration, Instant};

/// Longest wait for a job. A runner that has none by then is not needed and occupies the
/// place of another. A broker that reads a disk sends the job between the first two reads.
const JOB_WAIT: Duration = Duration::from_secs(30);

/// Path by which a tool opens the disk.
const DISK: &str = "/proc/self/fd/3";
const DISK_NUMBER: i32 = 3;
/// Exit status of a child that could not execute the tool.
const EXEC_FAILED: i32 = 126;

/// What every runner inherits from the supervisor.
#[derive(Debug)]
pub struct Inherited {
    /// The filters of all tools.
    pub filters: Filters,
    /// Id of the mount that `/dev` is on, where the opener opens disks.
    pub devices_mount: u64,
    /// Whether tools start on a kernel without Landlock.
    pub allow_missing_landlock: bool,
}

/// Serves one job on `socket`, on which the disk follows the job; returns the exit status of this
/// process.
pub fn serve(socket: &OwnedFd, inherited: &Inherited) -> u8 {
    let limited = confine::limit_runner().map_err(io::Error::other);
    let Ok((request, descriptors)) = channel::receive_within(socket, JOB_WAIT) else {
        return 1;
    };
    fault_point::reached("runner-started");
    let report = match Job::decode(&request) {
        Ok(job) if descriptors.is_empty() => limited
            .and_then(|()| run(&job, socket, inherited))
            .unwrap_or_else(|e| Report::not_run(&e)),
        _ => Report::not_run(&io::ErrorKind::InvalidInput.into()),
    };
    fault_point::reached("runner-finished");
    match channel::send(socket, &report.encode(), &[]) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

#[derive(Debug)]
struct Program {
    tool: ToolId,
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    deadline: Duration,
}

/// Runs the tool of a job on the disk that comes from `broker`, and watches it until it has ended.
/// The run ends early when the other end of `broker` is closed.
fn run(job: &Job, broker: &OwnedFd, inherited: &Inherited) -> io::Result<Report> {
    let (id, tool) = tool::of(job).ok_or(io::ErrorKind::InvalidInput)?;
    if !tool.file_systems.contains(&job.fs) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let program = &program(id, tool, job)?;
    let (output, output_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (failure, failure_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (input, input_end) = pipe_with(PipeFlags::CLOEXEC)?;
    drop(input_end);
    let (ours, theirs) = channel::pair()?;
    let parent = rustix::process::getpid();
    let child = match sys::fork()? {
        Fork::Child => {
            drop(ours);
            let ends = ChildEnds {
                input,
                output: output_end,
                failure: failure_end,
                listener_sender: theirs,
            };
            become_tool(program, &ends, parent, inherited);
            std::process::exit(EXEC_FAILED);
        }
        Fork::Parent(pid) => Pid::from_raw(pid).ok_or(io::ErrorKind::Other)?,
    };
    drop((theirs, output_end, failure_end, input));
    let outcome = supervise(program, broker, child, &ours, &output, inherited.devices_mount);
    if outcome.is_err() {
        kill(child);
        let _ = waitpid(Some(child), WaitOptions::empty());
    }
    let mut report = outcome?;
    let mut errno = [0_u8; 4];
    if rustix::io::read(&failure, &mut errno) == Ok(4) {
        report.end = RunEnd::NotRun(i32::from_le_bytes(errno));
    }
    Ok(report)
}

fn program(id: ToolId, tool: &Tool, job: &Job) -> io::Result<Program> {
    // The runner does not trust the broker, which has checked the options.
    let format = FormatOptions::check(&job.format, job.fs)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let arguments = tool.command_line(&Arguments { fs: job.fs, format: &format, uuid: job.uuid });
    let strings = |list: &[String]| -> io::Result<Vec<CString>> {
        list.iter().map(|text| CString::new(text.as_str()).map_err(io::Error::from)).collect()
    };
    Ok(Program {
        tool: id,
        path: CString::new(tool.path)?,
        arguments: strings(&arguments)?,
        environment: strings(&environment::given(id, job.time))?,
        deadline: tool.deadline.min(Duration::from_secs(job.deadline)),
    })
}

/// What a child takes over from its parent.
struct ChildEnds {
    input: OwnedFd,
    output: OwnedFd,
    failure: OwnedFd,
    listener_sender: OwnedFd,
}

/// Executes the program. Returns only when a step before or the exec itself failed.
fn become_tool(program: &Program, ends: &ChildEnds, parent: Pid, inherited: &Inherited) {
    // Above the numbers that are assigned below: what is written to this pipe must not go to the
    // disk.
    let Ok(failure) = fcntl_dupfd_cloexec(&ends.failure, 10) else {
        return;
    };
    let steps = || -> io::Result<()> {
        sys::default_signals();
        let socket = fcntl_dupfd_cloexec(&ends.listener_sender, 10)?;
        let input = fcntl_dupfd_cloexec(&ends.input, 10)?;
        let output = fcntl_dupfd_cloexec(&ends.output, 10)?;
        dup2_stdin(&input)?;
        dup2_stdout(&output)?;
        dup2_stderr(&output)?;
        sys::close_on_exec_from(3)?;
        rustix::process::chdir("/")?;
        confine::restrict(program.tool, Places::new(), inherited.allow_missing_landlock)
            .map_err(io::Error::other)?;
        sys::die_with_parent(parent)?;
        let listener = sys::listen_for_opens()?;
        channel::send(&socket, b"l", &[listener.as_fd()])?;
        drop(listener);
        inherited.filters.install(program.tool).map_err(io::Error::other)?;
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
    Awaited,
    /// The child has called it and waits.
    Requested(OpenNotification),
    Answered,
}

fn supervise(
    program: &Program,
    broker: &OwnedFd,
    child: Pid,
    listener_receiver: &OwnedFd,
    output: &OwnedFd,
    devices_mount: u64,
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
            killed = Some(RunEnd::Deadline);
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
                Some(claimed) if word == DISK_MESSAGE => {
                    check_disk(&claimed, devices_mount)?;
                    disk = Some(claimed);
                }
                _ => gone = true,
            }
            // The time limit of the tool begins when the disk arrives.
            end = Instant::now() + program.deadline;
        }
        // The broker is gone or has given up: the tool must not go on alone.
        if gone && killed.is_none() {
            kill(child);
            killed = Some(RunEnd::Deadline);
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
            (Some(code), _) => RunEnd::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, Some(signal)) => RunEnd::Signalled(signal),
            (None, None) => RunEnd::NotRun(0),
        },
        (None, None) => RunEnd::NotRun(0),
    };
    Ok(Report { end, tail })
}

/// Refuses what a broker could open itself, without a claim: a device node on a volume that it has
/// mounted, or a file with a name. The opener opens disks beneath `/dev`; the file in which a
/// format is made again has no name.
fn check_disk(disk: &OwnedFd, devices_mount: u64) -> io::Result<()> {
    let wanted = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::MNT_ID;
    let facts = statx(disk, "", AtFlags::EMPTY_PATH, wanted)?;
    let is_right = match FileType::from_raw_mode(facts.stx_mode.into()) {
        FileType::BlockDevice => facts.stx_mnt_id == devices_mount,
        FileType::RegularFile => facts.stx_nlink == 0,
        _ => false,
    };
    if is_right { Ok(()) } else { Err(rustix::io::Errno::PERM.into()) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::format_option::find;
    use ebs_csi_wire::FsType;

    #[test]
    fn job_with_unfit_format_option_starts_no_program() {
        let program = |fs, key, value| {
            let tool = ToolId::formats(fs);
            let format = vec![find(key).expect("a row").with(value)];
            let job = Job { tool: tool.number(), fs, uuid: [7; 16], format, time: 0, deadline: 60 };
            program(tool, tool.tool().expect("a row"), &job)
        };
        assert!(program(FsType::Ext4, "blockSize", 4096).is_ok());
        for (fs, key, value) in [(FsType::Ext4, "blockSize", 3), (FsType::Xfs, "ext4BigAlloc", 1)] {
            let refused = program(fs, key, value).expect_err("refused");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{key}");
        }
    }
}
