//! The tools of the policy's table, as a stage uses them: requests a runner for a tool, and
//! interprets how the tool ended.
use super::{Examined, FoundDisk};
use crate::disk::filesystem_identifier::identifier;
use crate::operation::OperationContext;
use crate::operation::runner_requests::WaitingRunner;
use crate::outcome::{At, Result, Stop, broken, damaged, failed, tool_failed};
use crate::tool::{PlaceKind, RunEnd};
use crate::{journal, sys, tool};
use ebs_csi_policy::judge::{Authorized, Preparation, StageDisk};
use ebs_csi_policy::tool::{DeviceAccess, Meaning, ToolId};
use ebs_csi_wire::{Failed, Features, FsType, Job, Observation, Refusal, Refused, Step, ToolEnd};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use std::num::NonZeroU8;
use std::time::Duration;

/// Requests a runner for the format that a request asks for. The runner waits for the disk; the
/// format writes `time`, in seconds since 1970, as its creation time. Returns None when no runner
/// is available now.
pub(super) fn request_format_runner<'w>(
    found: &FoundDisk<'w>,
    time: u64,
) -> Option<WaitingRunner<'w>> {
    let mut job = format_job(found, time);
    let (_, tool) = tool::of(&job)?;
    job.deadline = found.context.rules.deadline(tool).as_secs();
    found.context.runners.request_early(&job)
}

/// Makes the file system that a request asks for on a claimed disk, by the runner that waits for
/// the disk, or else by a new one with `time`.
pub(super) fn format(
    disk: &Examined<'_>,
    waiting: Option<WaitingRunner<'_>>,
    time: u64,
) -> Result<()> {
    if disk.permit.act().preparation != Preparation::Format {
        return Err(broken(Step::Format));
    }
    let job = format_job(disk.found, time);
    match run_tool(disk.found.context, job, &disk.claim, waiting, Step::Format)? {
        Meaning::Done => Ok(()),
        _ => Err(broken(Step::Format)),
    }
}

/// Makes the file system of a request once more, in memory that stands in for the disk: what a
/// format that began at `time` writes. The tool may run for at most `limit`.
pub(super) fn format_in_memory(
    found: &FoundDisk<'_>,
    bytes: u64,
    time: u64,
    limit: Duration,
) -> Result<()> {
    let (context, request) = (found.context, &found.request);
    journal::info("made-in-memory", &[("volume", request.disk.volume.as_str())]);
    let memory = context.disks.memory(bytes).at(Step::Format)?;
    let job = format_job(found, time);
    match run_tool_within(context, job, &memory, None, Step::Format, limit)? {
        Meaning::Done => Ok(()),
        _ => Err(broken(Step::Format)),
    }
}

fn format_job(found: &FoundDisk<'_>, time: u64) -> Job {
    let request = &found.request;
    Job {
        tool: ToolId::formats(request.fs).number(),
        fs: request.fs,
        uuid: identifier(&request.disk.volume),
        format: found.format.to_wire(),
        time,
        deadline: 0,
    }
}

/// How much of an ext file system a check examines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// Only a file system that is not clean.
    Usual,
    /// The whole file system, clean or not.
    Full,
    /// The whole file system, and this time, in seconds since 1970, is written as that of the
    /// check: an offline growth follows.
    FullBeforeGrowth(u64),
}

/// Checks ext3 or ext4; returns whether something was repaired. What an interrupted offline growth
/// left is repaired whatever it is; the repair counts when another full check then finds nothing
/// that needs a person.
pub(super) fn check(disk: &Examined<'_>, how: Check) -> Result<bool> {
    let fs = disk.found.request.fs;
    let run = |job| run_tool(disk.found.context, job, &disk.claim, None, Step::Check);
    let full = |time| Job { time, ..job_of(ToolId::E2fsckFull) };
    let (first, again) = match how {
        Check::Usual => (job_of(ToolId::E2fsck), full(0)),
        Check::Full => (full(0), full(0)),
        Check::FullBeforeGrowth(time) => (full(time), full(time)),
    };
    let mut meaning = run(first)?;
    if meaning == Meaning::Uncorrectable && disk.permit.act().growth_cut_short {
        journal::warn("growth-cut-short", &[("fs", fs.as_str())]);
        if run(job_of(ToolId::E2fsckAll))? != Meaning::Uncorrectable {
            meaning = match run(again)? {
                Meaning::Uncorrectable => Meaning::Uncorrectable,
                _ => Meaning::Repaired,
            };
        }
    }
    match meaning {
        Meaning::Clean | Meaning::Done => Ok(false),
        Meaning::Repaired => Ok(true),
        Meaning::Uncorrectable | Meaning::Unreplayed => Err(damaged(fs)),
    }
}

/// Checks all of ext3 or ext4 without changing it; returns whether there is no error.
pub(super) fn is_sound_ext(found: &FoundDisk<'_>, _permit: &Authorized<StageDisk>) -> Result<bool> {
    let meaning =
        run_tool(found.context, job_of(ToolId::E2fsckLook), found.device(), None, Step::Check)?;
    Ok(meaning == Meaning::Clean)
}

/// Checks an XFS without changing it; returns whether there is no error.
pub(super) fn is_sound_xfs(
    found: &FoundDisk<'_>,
    _permit: &Authorized<StageDisk>,
    tool: ToolId,
) -> Result<bool> {
    Ok(look_at_xfs(found, tool)? == Meaning::Clean)
}

/// Returns whether the log of an XFS has to be replayed.
pub(super) fn has_unreplayed_log(
    found: &FoundDisk<'_>,
    _permit: &Authorized<StageDisk>,
) -> Result<bool> {
    Ok(look_at_xfs(found, ToolId::XfsRepairLog)? == Meaning::Unreplayed)
}

/// Runs a tool with direct reads, because the page cache of the disk may be older than what a mount
/// wrote.
fn look_at_xfs(found: &FoundDisk<'_>, tool: ToolId) -> Result<Meaning> {
    let disk = found.device().read_directly(&found.context.disks).at(Step::ReadDevice)?;
    run_tool(found.context, job_of(tool), &disk, None, Step::Check)
}

/// Grows an ext3 or ext4 that is not mounted to the size of its disk. Returns false when resize2fs
/// does not grow it: it cannot grow some file systems.
pub(super) fn grow_ext(disk: &Examined<'_>) -> Result<bool> {
    let job = job_of(ToolId::Resize2fs);
    match run_tool(disk.found.context, job, &disk.claim, None, Step::Grow) {
        Ok(Meaning::Done) => Ok(true),
        Ok(_) => Err(broken(Step::Grow)),
        Err(Stop::Failed(Failed { tool: Some(ToolEnd::Exited(_)), .. })) => Ok(false),
        Err(stop) => Err(stop),
    }
}

fn job_of(tool: ToolId) -> Job {
    Job {
        tool: tool.number(),
        // The arguments of a checker do not depend on the type.
        fs: match tool {
            ToolId::XfsRepair | ToolId::XfsRepairMany | ToolId::XfsRepairLog => FsType::Xfs,
            _ => FsType::Ext4,
        },
        uuid: [0; 16],
        format: Vec::new(),
        time: 0,
        deadline: 0,
    }
}

/// Runs a job, by the runner that waits with it or else by a new one.
fn run_tool(
    context: &OperationContext,
    job: Job,
    disk: impl AsFd,
    waiting: Option<WaitingRunner<'_>>,
    step: Step,
) -> Result<Meaning> {
    run_tool_within(context, job, disk, waiting, step, Duration::MAX)
}

/// Does the same as [`run_tool`], in at most `limit`, where the policy allows more.
fn run_tool_within(
    context: &OperationContext,
    mut job: Job,
    disk: impl AsFd,
    waiting: Option<WaitingRunner<'_>>,
    step: Step,
    limit: Duration,
) -> Result<Meaning> {
    let (_, tool) = tool::of(&job).ok_or_else(|| broken(step))?;
    let deadline = context.rules.deadline(tool).min(limit);
    job.deadline = deadline.as_secs();
    // Whatever such a tool does, it cannot write through this descriptor.
    let read_only = fcntl_getfl(&disk).at(step)? & OFlags::ACCMODE == OFlags::RDONLY;
    if tool.device == DeviceAccess::ReadOnly && !read_only {
        return Err(broken(step));
    }
    let place = PlaceKind::of(tool.purpose);
    if !context.runners.take_place(place) {
        return Err(Stop::NoPlace(place));
    }
    let disk = disk.as_fd();
    let ran = match waiting {
        Some(waiting) => waiting.run(disk, deadline),
        None => context.runners.run(&job, disk, deadline),
    };
    let report = match ran {
        Ok(report) => report,
        Err(e) => {
            journal::error("runner", &[("tool", tool.key), ("why", &e.to_string())]);
            return Err(failed(Step::Runner, sys::errno_of(&e)));
        }
    };
    let end = format!("{:?}", report.end);
    let fields = [("tool", tool.key), ("end", end.as_str()), ("said", report.tail.as_str())];
    if let RunEnd::Exited(status) = report.end
        && let Some(meaning) = tool.meaning(status)
        && !(meaning == Meaning::Uncorrectable && tool.lacks_feature(&report.tail))
    {
        journal::info("tool", &fields);
        return Ok(meaning);
    }
    journal::error("tool", &fields);
    if tool.lacks_feature(&report.tail) {
        return Err(newer_than_checker(context, disk));
    }
    let end = match report.end {
        RunEnd::Exited(status) => NonZeroU8::new(status).map(ToolEnd::Exited),
        RunEnd::Signalled(signal) => {
            u8::try_from(signal).ok().and_then(NonZeroU8::new).map(ToolEnd::Signalled)
        }
        RunEnd::Deadline => return Err(broken(Step::ToolDeadline)),
        RunEnd::NotRun(0) => return Err(broken(Step::Runner)),
        RunEnd::NotRun(errno) => return Err(failed(Step::Runner, Errno::from_raw_os_error(errno))),
    };
    Err(end.map_or_else(|| broken(step), |end| tool_failed(step, end)))
}

/// Builds the refusal of a file system with features that the checker does not know: the checker
/// says nothing about its state.
fn newer_than_checker(context: &OperationContext, disk: BorrowedFd<'_>) -> Stop {
    let features = context.disks.first_facts(disk).ok().and_then(|facts| facts.features);
    let newer = features.and_then(Features::newer_than_checker);
    let seen = newer.map(|features| Observation::Lacking { features, kernel: None });
    Refused { reason: Refusal::NewerThanChecker, seen }.into()
}
