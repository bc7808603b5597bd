//! The tools of the policy's table: the broker requests a tool, the runner runs it, and the broker
//! interprets how it ended.
use crate::comparison;
use crate::confinement;
use crate::job::{End, Job, Report};
use crate::journal;
use crate::outcome::{At, Done, Stop, broken, failed, tool_failed};
use crate::runners::Waiting;
use crate::tool::{self, Program};
use crate::world::World;
use ebs_csi_confine::tool::Filters;
use ebs_csi_policy::judge::{Authorized, Preparation, StageDisk};
use ebs_csi_policy::tool::{Arguments, Meaning, Tool, ToolId};
use ebs_csi_wire::{
    ContentState, Failed, FormatOptions, FsType, Refusal, Refused, Seen, Stage, Step, ToolEnd,
    VolumeId,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::num::{NonZeroI32, NonZeroU8};
use std::time::Duration;

/// The environment of every tool. Without a locale its messages are the same everywhere. An arena
/// of the C library's allocator takes 64 MiB of address space, and without a limit there are eight
/// for each processor.
const ENVIRONMENT: [&str; 3] = ["LC_ALL=C", "TZ=UTC", "MALLOC_ARENA_MAX=4"];
/// Variable with the creation time that mke2fs writes, in seconds since 1970; two formats with the
/// same time write the same bytes.
const TIME_OF_EXT: &str = "E2FSPROGS_FAKE_TIME";
/// Variable with the time that e2fsck uses as the current time and writes as that of its check.
const TIME_OF_CHECK: &str = "E2FSCK_TIME";

/// Returns the identifier of the file system that a format of this volume makes: a UUID of version
/// 8 (RFC 9562) that contains the volume's digits, so that an interrupted format can be recognised
/// as this volume's own.
pub fn identifier(volume: &VolumeId) -> [u8; 16] {
    let digits = volume.as_str().strip_prefix("vol-").unwrap_or_default();
    // 32 hexadecimal digits: twelve that are constant, the version, three of the volume's, the
    // variant, fifteen more of the volume's.
    let padded = format!("{digits:0>18}");
    let (first, rest) = padded.split_at(3);
    let text = format!("ebc51d000000{}{first}{}{rest}", '8', '8');
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |c: u8| char::from(c).to_digit(16).unwrap_or(0);
        let value = pair.iter().fold(0, |sum, c| sum * 16 + digit(*c));
        *byte = u8::try_from(value & 0xff).unwrap_or(0);
    }
    bytes
}

/// Returns the volume whose identifier a file system has; None for an identifier that no format of
/// this driver wrote.
pub fn volume_of(identifier: [u8; 16]) -> Option<VolumeId> {
    let text: String = identifier
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let digits = format!("{}{}", &text[13..16], &text[17..]);
    // Older volume ids have eight digits, the others seventeen.
    [digits.get(10..), digits.get(1..)]
        .into_iter()
        .flatten()
        .filter_map(|digits| VolumeId::parse(&format!("vol-{digits}")).ok())
        .find(|volume| self::identifier(volume) == identifier)
}

/// Requests a runner for the format that a request asks for. The runner waits for the disk; the
/// format writes `time`, in seconds since 1970, as its creation time. Returns None when no runner
/// is available now.
pub fn ask_for_format<'w>(world: &'w World, asked: &Stage, time: u64) -> Option<Waiting<'w>> {
    let mut job = format_job(asked, time);
    job.deadline = world.rules.deadline(job.tool.tool()?).as_secs();
    world.runners.ask_early(&job)
}

/// Makes the file system that a request asks for on a claimed disk, by the runner that waits for
/// the disk, or else by a new one with `time`.
pub fn format(
    world: &World,
    permit: &Authorized<StageDisk>,
    asked: &Stage,
    claim: &OwnedFd,
    waiting: Option<Waiting<'_>>,
    time: u64,
) -> Done<()> {
    if permit.act().preparation != Preparation::Format {
        return Err(broken(Step::Format));
    }
    made(world, asked, claim, waiting, time)
}

/// Makes the file system of a request once more, in memory that stands in for the disk: what a
/// format that began at `time` writes. The tool may run for at most `limit`.
pub fn reference(
    world: &World,
    asked: &Stage,
    bytes: u64,
    time: u64,
    limit: Duration,
) -> Done<OwnedFd> {
    journal::info("made-in-memory", &[("volume", asked.disk.volume.as_str())]);
    let memory = comparison::memory(bytes).at(Step::Format)?;
    let job = format_job(asked, time);
    match ask_within(world, job, &memory, None, Step::Format, limit)? {
        Meaning::Done => Ok(memory),
        _ => Err(broken(Step::Format)),
    }
}

fn format_job(asked: &Stage, time: u64) -> Job {
    Job {
        tool: ToolId::formats(asked.fs),
        fs: asked.fs,
        uuid: identifier(&asked.disk.volume),
        format: asked.format,
        time,
        deadline: 0,
    }
}

fn made(
    world: &World,
    asked: &Stage,
    on: &OwnedFd,
    waiting: Option<Waiting<'_>>,
    time: u64,
) -> Done<()> {
    match ask(world, format_job(asked, time), on, waiting, Step::Format)? {
        Meaning::Done => Ok(()),
        _ => Err(broken(Step::Format)),
    }
}

/// How much of an ext file system a check examines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Only a file system that is not clean.
    Usual,
    /// The whole file system, clean or not.
    Full,
    /// The whole file system, and this time, in seconds since 1970, is written as that of the
    /// check: an offline growth follows.
    FullBeforeGrowth(u64),
}

/// Checks ext3 or ext4; returns whether something was repaired. `fs` is the requested file system.
/// What an interrupted offline growth left is repaired whatever it is; the repair counts when
/// another full check then finds nothing that needs a person.
pub fn check(
    world: &World,
    permit: &Authorized<StageDisk>,
    fs: FsType,
    claim: &OwnedFd,
    how: Check,
) -> Done<bool> {
    let run = |job| ask(world, job, claim, None, Step::Check);
    let full = |time| Job {
        time,
        ..plain(ToolId::E2fsckFull)
    };
    let (first, again) = match how {
        Check::Usual => (plain(ToolId::E2fsck), full(0)),
        Check::Full => (full(0), full(0)),
        Check::FullBeforeGrowth(time) => (full(time), full(time)),
    };
    let mut meaning = run(first)?;
    if meaning == Meaning::Uncorrectable && permit.act().growth_cut_short {
        journal::warn("growth-cut-short", &[("fs", fs.as_str())]);
        if run(plain(ToolId::E2fsckAll))? != Meaning::Uncorrectable {
            meaning = match run(again)? {
                Meaning::Uncorrectable => Meaning::Uncorrectable,
                _ => Meaning::Repaired,
            };
        }
    }
    match meaning {
        Meaning::Clean | Meaning::Done => Ok(false),
        Meaning::Repaired => Ok(true),
        Meaning::Uncorrectable => {
            let damaged = Seen::Content {
                signature: fs.into(),
                state: ContentState::Damaged,
            };
            Err(Refused::because(Refusal::FilesystemErrors, damaged).into())
        }
    }
}

/// Runs a checker that changes nothing; returns whether it finds no error.
pub fn sound(
    world: &World,
    _permit: &Authorized<StageDisk>,
    tool: ToolId,
    disk: &OwnedFd,
) -> Done<bool> {
    match ask(world, plain(tool), disk, None, Step::Check)? {
        Meaning::Clean | Meaning::Done => Ok(true),
        Meaning::Repaired | Meaning::Uncorrectable => Ok(false),
    }
}

/// Grows an ext3 or ext4 that is not mounted to the size of its disk. Returns false when resize2fs
/// does not grow it: it cannot grow some file systems.
pub fn grow_ext(world: &World, _permit: &Authorized<StageDisk>, claim: &OwnedFd) -> Done<bool> {
    match ask(world, plain(ToolId::Resize2fs), claim, None, Step::Grow) {
        Ok(Meaning::Done) => Ok(true),
        Ok(_) => Err(broken(Step::Grow)),
        Err(Stop::Failed(Failed {
            tool: Some(ToolEnd::Exited(_)),
            ..
        })) => Ok(false),
        Err(stop) => Err(stop),
    }
}

fn plain(tool: ToolId) -> Job {
    Job {
        tool,
        // The arguments of a checker do not depend on the type.
        fs: if matches!(tool, ToolId::XfsRepair | ToolId::XfsRepairMany) {
            FsType::Xfs
        } else {
            FsType::Ext4
        },
        uuid: [0; 16],
        format: FormatOptions::default(),
        time: 0,
        deadline: 0,
    }
}

/// Runs a job, by the runner that waits with it or else by a new one.
fn ask(
    world: &World,
    job: Job,
    claim: &OwnedFd,
    waiting: Option<Waiting<'_>>,
    step: Step,
) -> Done<Meaning> {
    ask_within(world, job, claim, waiting, step, Duration::MAX)
}

/// Does the same as [`ask`], in at most `limit`, where the policy allows more.
fn ask_within(
    world: &World,
    mut job: Job,
    claim: &OwnedFd,
    waiting: Option<Waiting<'_>>,
    step: Step,
    limit: Duration,
) -> Done<Meaning> {
    let tool = job.tool.tool().ok_or_else(|| broken(step))?;
    let deadline = world.rules.deadline(tool).min(limit);
    job.deadline = deadline.as_secs();
    if !world.runners.take_place() {
        return Err(Stop::NoPlace);
    }
    let ran = match waiting {
        Some(waiting) => waiting.run(claim, deadline),
        None => world.runners.run(&job, claim, deadline),
    };
    let report = match ran {
        Ok(report) => report,
        Err(e) => {
            journal::error("runner", &[("tool", tool.key), ("why", &e.to_string())]);
            return Err(failed(
                Step::Runner,
                Errno::from_io_error(&e).unwrap_or(Errno::IO),
            ));
        }
    };
    let end = format!("{:?}", report.end);
    let fields = [
        ("tool", tool.key),
        ("end", end.as_str()),
        ("said", report.tail.as_str()),
    ];
    let meaning = match report.end {
        End::Exited(status) => tool.meaning(status),
        _ => None,
    };
    match meaning {
        Some(_) => journal::info("tool", &fields),
        None => journal::error("tool", &fields),
    }
    match (meaning, report.end) {
        (Some(meaning), _) => Ok(meaning),
        (None, End::Exited(status)) => Err(match NonZeroU8::new(status) {
            Some(status) => tool_failed(step, ToolEnd::Exited(status)),
            None => broken(step),
        }),
        (None, End::Signalled(signal)) => Err(match signalled(signal) {
            Some(end) => tool_failed(step, end),
            None => broken(step),
        }),
        (None, End::Deadline) => Err(broken(Step::ToolDeadline)),
        (None, End::NotRun(errno)) => Err(match NonZeroI32::new(errno) {
            Some(errno) => failed(Step::Runner, Errno::from_raw_os_error(errno.get())),
            None => broken(Step::Runner),
        }),
    }
}

fn signalled(signal: i32) -> Option<ToolEnd> {
    NonZeroU8::new(u8::try_from(signal).ok()?).map(ToolEnd::Signalled)
}

/// Runs the tool of a job in the runner, confined, on the disk that comes from `broker`, and
/// watches it until it has ended.
pub fn run(
    job: &Job,
    broker: &OwnedFd,
    filters: &Filters,
    allow_missing_landlock: bool,
) -> io::Result<Report> {
    let tool = job.tool.tool().ok_or(io::ErrorKind::InvalidInput)?;
    if !tool.file_systems.contains(&job.fs) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let program = program(tool, job)?;
    tool::run(
        &program,
        broker,
        || confinement::tool_files(job.tool, allow_missing_landlock),
        || confinement::tool_calls(filters, job.tool),
    )
}

fn program(tool: &Tool, job: &Job) -> io::Result<Program> {
    let arguments = tool.command_line(&Arguments {
        fs: job.fs,
        format: &job.format,
        uuid: job.uuid,
    });
    let strings = |list: &[String]| -> io::Result<Vec<CString>> {
        list.iter()
            .map(|text| CString::new(text.as_str()).map_err(io::Error::from))
            .collect()
    };
    Ok(Program {
        path: CString::new(tool.path)?,
        arguments: strings(&arguments)?,
        environment: strings(&environment(job))?,
        deadline: tool.deadline.min(Duration::from_secs(job.deadline)),
    })
}

fn environment(job: &Job) -> Vec<String> {
    let name = match job.tool {
        ToolId::Mke2fs => Some(TIME_OF_EXT),
        ToolId::E2fsckFull if job.time != 0 => Some(TIME_OF_CHECK),
        _ => None,
    };
    let time = name.map(|name| format!("{name}={}", job.time));
    ENVIRONMENT
        .map(str::to_owned)
        .into_iter()
        .chain(time)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_a_uuid_of_version_8_that_holds_the_volume() {
        let volume = VolumeId::parse("vol-0123456789abcdef0").expect("id");
        assert_eq!(
            identifier(&volume),
            [
                0xeb, 0xc5, 0x1d, 0, 0, 0, 0x80, 0x01, 0x82, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde,
                0xf0
            ]
        );
        let short = VolumeId::parse("vol-1a2b3c4d").expect("id");
        assert_ne!(identifier(&volume), identifier(&short));
        assert_eq!(identifier(&short)[12..], [0x1a, 0x2b, 0x3c, 0x4d]);
        for volume in [volume, short] {
            assert_eq!(volume_of(identifier(&volume)), Some(volume));
        }
        for other in [[0; 16], [0xeb; 16]] {
            assert_eq!(volume_of(other), None);
        }
    }
}
