//! Attempts what each profile forbids and what each profile must permit: each right on files, limit
//! and capability from the tables, and sequences of calls from the list here. The answers to single
//! calls are in `src/syscall_filter/tests.rs`.
//!
//! Every case runs in a process of its own: this program starts itself, and the child enters the
//! profile with a single thread and makes the attempt. For that reason the program has no test
//! harness.

#[path = "../harness/mod.rs"]
mod harness;
mod held;
mod name_server;
mod rights;
mod sys;

use std::fs::{self, File};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use ebs_csi_confine::{Fault, Places, enter, landlock_abi, raise};
use ebs_csi_policy::profile::{self, Profile, process};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, mknodat, openat2};
use rustix::thread::{Uid, set_thread_res_uid};
use sys::call;

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptResult {
    /// The attempt succeeds.
    Works,
    /// The system call filter ends the process.
    Killed,
    /// The process ends by abort(3).
    Aborted,
    /// The attempt fails with this errno.
    Refused(i32),
}
use AttemptResult::{Aborted, Killed, Refused, Works};

const EACCES: i32 = 13;
const EPERM: i32 = 1;

type Attempt = fn(&Path) -> io::Result<()>;

const ATTEMPTS: &[(&str, Attempt)] = &[
    ("read-own-status", |_| fs::read("/proc/self/status").map(drop)),
    ("read-shadow", |_| File::open("/etc/shadow").map(drop)),
    ("create-file-of-root", |scratch| {
        held_open(&scratch.join("kubelet/made"), OFlags::WRONLY | OFlags::CREATE)
    }),
    ("write-core-pattern-of-root", |_| {
        held_open(Path::new("/proc/sys/kernel/core_pattern"), OFlags::WRONLY)
    }),
    ("open-disk-of-group", |scratch| held_open(&scratch.join("disk"), OFlags::RDONLY)),
    ("start-program", |_| Command::new("/bin/true").status().map(drop)),
    ("become-tool", |_| Err(Command::new("/usr/sbin/mke2fs").arg("-V").exec())),
    ("tcp-connect", |_| match TcpStream::connect("127.0.0.1:9") {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        other => other.map(drop),
    }),
    ("unix-connect", |_| match UnixStream::connect("/nonexistent/socket") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map(drop),
    }),
    ("thread", |_| {
        std::thread::spawn(|| ()).join().map_err(|_| io::Error::other("the thread panicked"))
    }),
    ("look-up", |_| {
        let look_up = || ("localhost", 9).to_socket_addrs().map(drop);
        std::thread::spawn(look_up).join().map_err(|_| io::Error::other("the thread panicked"))?
    }),
    (name_server::ATTEMPT, |_| name_server::look_up()),
    ("panic", |_| match std::panic::catch_unwind(|| panic!("attempted")) {
        Err(_) => Ok(()),
        Ok(()) => Err(io::Error::other("no panic")),
    }),
    ("abort", |_| std::process::abort()),
    ("become-root", |_| Ok(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?)),
    ("lower-limits-to-runners", |_| {
        ebs_csi_confine::tool::limit_runner().map_err(io::Error::other)?;
        let mut limits = profile::RUNNER.limits.iter();
        let wrong =
            limits.find(|limit| held::limit_of(limit.resource).maximum != Some(limit.value));
        wrong.map_or(Ok(()), |limit| Err(io::Error::other(format!("{limit:?}"))))
    }),
    ("raise-dac-read-search", |_| {
        let capability = profile::BROKER.capability("CAP_DAC_READ_SEARCH").expect("held");
        raise(capability).map(drop).map_err(|fault| io::Error::other(fault.to_string()))
    }),
    ("make-directory-beneath-root", |_| {
        Ok(mkdirat(kubelet_root(), "made", Mode::from_raw_mode(0o750))?)
    }),
    ("write-to-opened-device", |_| write(&opened_device()?)),
    ("write-to-copy-of-opened-device", |_| {
        write(&rustix::io::fcntl_dupfd_cloexec(opened_device()?, 0)?)
    }),
    ("close-kept-descriptor", |_| call(libc::SYS_close, [2, 0, 0, 0, 0, 0])),
];

/// Profile, required outcome, the attempts that have it.
const CASES: &[(&str, AttemptResult, &str)] = &[
    ("controller", Works, "read-own-status tcp-connect thread look-up ask-name-server"),
    ("controller", Refused(EACCES), "read-shadow"),
    ("controller", Refused(EPERM), "start-program"),
    (
        "node-lifecycle",
        Works,
        "read-own-status tcp-connect unix-connect thread look-up ask-name-server",
    ),
    ("launcher", Killed, "thread"),
    ("router", Works, "unix-connect"),
    ("router", Killed, "thread"),
    ("node-agent", Works, "read-own-status unix-connect"),
    ("node-agent", Killed, "thread"),
    ("supervisor", Works, "become-tool read-own-status lower-limits-to-runners"),
    ("broker", Works, "raise-dac-read-search"),
    ("broker", Refused(EPERM), "close-kept-descriptor"),
    (
        "broker",
        Refused(EACCES),
        "write-core-pattern-of-root create-file-of-root open-disk-of-group",
    ),
    (
        "broker",
        Killed,
        "write-to-opened-device write-to-copy-of-opened-device start-program thread",
    ),
    ("directories", Works, "make-directory-beneath-root"),
    ("opener", Killed, "write-to-opened-device write-to-copy-of-opened-device"),
];

/// The attempts of every profile, of which the first shows that the kernel does as its filters say.
const OF_ALL: [(&str, AttemptResult); 5] =
    [("become-root", Killed), ("panic", Works), ("abort", Aborted), (FILES, Works), (HELD, Works)];

/// Each right on files, and what else Landlock denies.
const FILES: &str = "landlock-rights";
/// Each limit, capability and bit of securebits.
const HELD: &str = "limits-and-capabilities";

fn opened_device() -> io::Result<OwnedFd> {
    Ok(openat2(CWD, "/dev/null", OFlags::RDWR, Mode::empty(), ResolveFlags::empty())?)
}

fn write(descriptor: &OwnedFd) -> io::Result<()> {
    Ok(rustix::io::write(descriptor, b"x").map(drop)?)
}

/// Calls openat2(2), the only call with which the broker may open a file.
fn held_open(path: &Path, flags: OFlags) -> io::Result<()> {
    let mode = if flags.contains(OFlags::CREATE) { 0o600 } else { 0 };
    let how = ResolveFlags::empty();
    Ok(openat2(CWD, path, flags, Mode::from_raw_mode(mode), how).map(drop)?)
}

static ROOT: OnceLock<File> = OnceLock::new();

fn kubelet_root() -> &'static File {
    ROOT.get().expect("opened before the confinement")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, profile, attempt, scratch] = arguments.as_slice()
        && flag == "--child"
    {
        return child(profile, attempt, Path::new(scratch));
    }
    let (newest, kernel) = (process::LANDLOCK.abi, landlock_abi());
    if kernel < newest {
        println!("skipped: rights of Landlock ABI {newest}; the kernel has ABI {kernel}");
    }
    let listed = CASES.iter().flat_map(|(profile, expected, attempts)| {
        attempts.split(' ').map(move |attempt| (*profile, attempt, *expected))
    });
    let of_all = profile::ALL
        .into_iter()
        .flat_map(|profile| OF_ALL.map(|(attempt, expected)| (profile.name, attempt, expected)));
    // A tool is a program in C and has no panics.
    let of_all = of_all.filter(|(profile, attempt, _)| (*profile, *attempt) != ("tool", "panic"));
    let cases: Vec<_> = listed.chain(of_all).collect();
    let is_used = |name| cases.iter().any(|(_, attempt, _)| *attempt == name);
    let unused = ATTEMPTS.iter().map(|(name, _)| name).find(|name| !is_used(**name));
    assert_eq!(unused, None, "belongs to no case");
    harness::run(cases.into_iter().map(|(profile, attempt, expected)| {
        let case = move || -> harness::TestResult {
            let found = run(profile, attempt)?;
            if found == expected { Ok(()) } else { Err(format!("found {found:?}").into()) }
        };
        (format!("{profile}: {attempt} is {expected:?}"), case)
    }))
}

/// Exit status of a child that could not be confined.
const NOT_CONFINED: u8 = 250;
/// Exit status of a child whose attempt failed without an errno.
const OTHER: u8 = 251;

fn run(profile: &str, attempt: &str) -> io::Result<AttemptResult> {
    let scratch = scratch()?;
    let this = std::env::current_exe()?;
    let mut command = Command::new(&this);
    if attempt == name_server::ATTEMPT {
        command = Command::new("unshare");
        command.arg("--mount").arg(&this);
        name_server::start();
    }
    let status = command
        .args(["--child", profile, attempt])
        .arg(scratch.path())
        // A backtrace would read the program's file, which few profiles may.
        .env_remove("RUST_BACKTRACE")
        .stdin(std::process::Stdio::null())
        .status()?;
    match (status.signal(), status.code()) {
        (Some(libc::SIGSYS), _) => Ok(Killed),
        (Some(libc::SIGABRT), _) => Ok(Aborted),
        (_, Some(0)) => Ok(Works),
        (_, Some(code)) if code < i32::from(NOT_CONFINED) => Ok(Refused(code)),
        _ => Err(io::Error::other(status.to_string())),
    }
}

fn child(profile: &str, attempt: &str, scratch: &Path) -> ExitCode {
    let profile = profile::named(profile).expect("a profile");
    match attempt {
        FILES => return rights::attempt(profile, scratch),
        HELD => return held::attempt(profile),
        _ => {}
    }
    let Some((_, action)) = ATTEMPTS.iter().find(|(name, _)| *name == attempt) else {
        return ExitCode::from(NOT_CONFINED);
    };
    if attempt == name_server::ATTEMPT {
        name_server::choose(scratch).expect("an own mount namespace");
    }
    if let Err(problem) = confine(profile, scratch) {
        println!("{}: {problem}", profile.name);
        return ExitCode::from(NOT_CONFINED);
    }
    match action(scratch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(
            error.raw_os_error().and_then(|errno| u8::try_from(errno).ok()).unwrap_or(OTHER),
        ),
    }
}

/// Says what differs from the profile.
fn outcome(differences: &[String]) -> ExitCode {
    differences.iter().for_each(|difference| println!("    {difference}"));
    ExitCode::from(if differences.is_empty() { 0 } else { OTHER })
}

fn confine(profile: &'static Profile, scratch: &Path) -> Result<(), Fault> {
    let root = File::open(scratch.join("kubelet")).expect("the parent made it");
    ROOT.set(root).expect("set once");
    let places = Places::new()
        .with("kubelet-root", scratch.join("kubelet"))?
        .with("service-account", scratch.join("kubelet"))?
        .with("socket-directory", scratch)?
        .with("backend-socket-directory", scratch)?
        .with("tool", scratch)?;
    let places = ebs_csi_confine::tool::programs(places)?;
    enter(profile, &places).map(drop)
}

/// Makes a directory that everyone may write to, so that only the profile can refuse.
fn scratch() -> io::Result<tempfile::TempDir> {
    let scratch = tempfile::tempdir()?;
    let path = scratch.path();
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let kubelet = path.join("kubelet");
    fs::create_dir(&kubelet)?;
    fs::write(kubelet.join("there"), "")?;
    // A device node with the group that owns disks; no driver has this major number
    // (linux/major.h).
    let disk = path.join("disk");
    let mode = Mode::from_raw_mode(0o660);
    mknodat(CWD, &disk, FileType::BlockDevice, mode, 60 << 8)?;
    std::os::unix::fs::chown(&disk, None, Some(6))?;
    Ok(scratch)
}
