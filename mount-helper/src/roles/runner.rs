//! One job: receives it, runs its tool, reports, and ends. Forked from the confined supervisor,
//! with nothing to gain.
use crate::channel;
use crate::fault_point;
use crate::roles::confinement;
use crate::tool;
use crate::tool::process_control::{self, Program};
use crate::tool::report::Report;
use ebs_csi_confine::tool::Filters;
use ebs_csi_policy::tool::{Arguments, Tool, ToolId};
use ebs_csi_wire::Job;
use rustix::fd::OwnedFd;
use std::ffi::CString;
use std::io;
use std::time::Duration;

/// Longest wait for a job. A runner that has none by then was started in vain and occupies the
/// place of another. A broker that reads a disk sends the job between the first two reads.
const JOB_WAIT: Duration = Duration::from_secs(30);

/// The environment of every tool. Without a locale its messages are the same everywhere. An arena
/// of the C library's allocator takes 64 MiB of address space, and without a limit there are eight
/// for each processor.
const ENVIRONMENT: [&str; 3] = ["LC_ALL=C", "TZ=UTC", "MALLOC_ARENA_MAX=4"];
/// Variable with the creation time that mke2fs writes, in seconds since 1970; two formats with the
/// same time write the same bytes.
const TIME_OF_EXT: &str = "E2FSPROGS_FAKE_TIME";
/// Variable with the time that e2fsck uses as the current time and writes as that of its check.
const TIME_OF_CHECK: &str = "E2FSCK_TIME";

/// Serves one job on `socket`, on which the disk follows the job; returns the exit status of this
/// process.
pub fn serve(socket: &OwnedFd, filters: &Filters, allow_missing_landlock: bool) -> u8 {
    let limited = confinement::runner_limits();
    let Ok((request, descriptors)) = channel::receive_within(socket, JOB_WAIT) else {
        return 1;
    };
    fault_point::reached("runner-started");
    let report = match Job::decode(&request) {
        Ok(job) if descriptors.is_empty() => limited
            .and_then(|()| run(&job, socket, filters, allow_missing_landlock))
            .unwrap_or_else(|e| Report::not_run(&e)),
        _ => Report::not_run(&io::ErrorKind::InvalidInput.into()),
    };
    fault_point::reached("runner-finished");
    match channel::send(socket, &report.encode(), &[]) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

/// Runs the tool of a job in the runner, confined, on the disk that comes from `broker`, and
/// watches it until it has ended.
fn run(
    job: &Job,
    broker: &OwnedFd,
    filters: &Filters,
    allow_missing_landlock: bool,
) -> io::Result<Report> {
    let (id, tool) = tool::of(job).ok_or(io::ErrorKind::InvalidInput)?;
    if !tool.file_systems.contains(&job.fs) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let program = program(id, tool, job)?;
    process_control::run(
        &program,
        broker,
        || confinement::tool_files(id, allow_missing_landlock),
        || confinement::tool_calls(filters, id),
    )
}

fn program(id: ToolId, tool: &Tool, job: &Job) -> io::Result<Program> {
    let arguments =
        tool.command_line(&Arguments { fs: job.fs, format: &job.format, uuid: job.uuid });
    let strings = |list: &[String]| -> io::Result<Vec<CString>> {
        list.iter().map(|text| CString::new(text.as_str()).map_err(io::Error::from)).collect()
    };
    Ok(Program {
        path: CString::new(tool.path)?,
        arguments: strings(&arguments)?,
        environment: strings(&environment(id, job.time))?,
        deadline: tool.deadline.min(Duration::from_secs(job.deadline)),
    })
}

fn environment(id: ToolId, time: u64) -> Vec<String> {
    let name = match id {
        ToolId::Mke2fs => Some(TIME_OF_EXT),
        ToolId::E2fsckFull if time != 0 => Some(TIME_OF_CHECK),
        _ => None,
    };
    let time = name.map(|name| format!("{name}={time}"));
    ENVIRONMENT.map(str::to_owned).into_iter().chain(time).collect()
}
