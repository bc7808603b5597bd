//! Attempts what each profile forbids and what each profile must permit.
//!
//! Every case runs in a process of its own: this program starts itself, and the child enters the
//! profile with a single thread and makes the attempt. For that reason the program has no test
//! harness.

mod sys;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use ebs_csi_confine::{Entering, Fault, Places, raise};
use ebs_csi_policy::profile::{self, Profile, Resource};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, mknodat, openat, openat2, unlinkat,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socket_with, socketpair,
};
use rustix::thread::{Uid, set_thread_res_uid};
use sys::call;

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptResult {
    /// The attempt succeeds.
    Works,
    /// The system call filter ends the process.
    Killed,
    /// The attempt fails with this errno.
    Refused(i32),
}
use AttemptResult::{Killed, Refused, Works};

const EACCES: i32 = 13;
const EPERM: i32 = 1;
const EBADF: i32 = 9;
const EAFNOSUPPORT: i32 = 97;

/// A bit of an argument's upper half.
const UPPER_HALF: i64 = 1 << 32;
/// linux/mount.h
const MOUNT_ATTR_NODEV: i64 = 4;

type Attempt = fn(&Path) -> io::Result<()>;

const ATTEMPTS: &[(&str, Attempt)] = &[
    ("read-own-status", |_| fs::read("/proc/self/status").map(drop)),
    ("read-shadow", |_| File::open("/etc/shadow").map(drop)),
    ("read-hosts", |_| File::open("/etc/hosts").map(drop)),
    ("list-added-certificates", |_| fs::read_dir("/usr/local/share").map(drop)),
    ("write-core-pattern", |_| {
        OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern").map(drop)
    }),
    ("create-file", |scratch| File::create(scratch.join("made")).map(drop)),
    ("create-file-of-root", |scratch| {
        held_open(&scratch.join("kubelet/made"), OFlags::WRONLY | OFlags::CREATE)
    }),
    ("write-core-pattern-of-root", |_| {
        held_open(Path::new("/proc/sys/kernel/core_pattern"), OFlags::WRONLY)
    }),
    ("open-disk-of-group", |scratch| held_open(&scratch.join("disk"), OFlags::RDONLY)),
    ("open-device", |_| held_open(Path::new("/dev/null"), OFlags::RDWR)),
    ("open-hosts", |_| held_open(Path::new("/etc/hosts"), OFlags::RDONLY)),
    ("open-by-name", |_| File::open("/etc/hosts").map(drop)),
    ("start-program", |_| Command::new("/bin/true").status().map(drop)),
    ("start-tool", |_| Command::new("/usr/sbin/mke2fs").arg("-V").status().map(drop)),
    ("become-program", |_| Err(Command::new("/bin/true").exec())),
    ("become-tool", |_| Err(Command::new("/usr/sbin/mke2fs").arg("-V").exec())),
    ("tcp-connect", |_| match TcpStream::connect("127.0.0.1:9") {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        other => other.map(drop),
    }),
    ("tcp-listen", |_| TcpListener::bind("127.0.0.1:0").map(drop)),
    ("udp", |_| UdpSocket::bind("127.0.0.1:0").map(drop)),
    ("unix-connect", |_| match UnixStream::connect("/nonexistent/socket") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map(drop),
    }),
    ("vsock", |_| {
        match socket_with(AddressFamily::VSOCK, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
            // The filter allows the family, and the kernel does not have it.
            Err(rustix::io::Errno::AFNOSUPPORT) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }),
    ("unix-listen", |scratch| UnixListener::bind(scratch.join("socket")).map(drop)),
    ("thread", |_| {
        std::thread::spawn(|| ()).join().map_err(|_| io::Error::other("the thread panicked"))
    }),
    ("signal-self", |_| {
        // The signal ends this process; signalling a child would need a fork.
        let own = rustix::process::getpid();
        match rustix::process::kill_process(own, rustix::process::Signal::TERM) {
            Ok(()) => Err(io::Error::other("the signal did not arrive")),
            Err(error) => Err(error.into()),
        }
    }),
    ("user-signal", |_| {
        let own = rustix::process::getpid();
        Ok(rustix::process::kill_process(own, rustix::process::Signal::USR1)?)
    }),
    ("become-root", |_| Ok(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?)),
    ("open-file-system", |_| {
        let flags = rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC;
        Ok(rustix::mount::fsopen("tmpfs", flags).map(drop)?)
    }),
    ("change-mode", |scratch| {
        fs::set_permissions(scratch, std::os::unix::fs::PermissionsExt::from_mode(0o777))
    }),
    ("lower-limits-to-runners", |_| {
        ebs_csi_confine::tool::limit_runner().map_err(io::Error::other)?;
        let wrong = profile::RUNNER.limits.iter().find(|limit| {
            let resource = match limit.resource {
                Resource::Core => rustix::process::Resource::Core,
                Resource::Descriptors => rustix::process::Resource::Nofile,
            };
            rustix::process::getrlimit(resource).maximum != Some(limit.value)
        });
        wrong.map_or(Ok(()), |limit| Err(io::Error::other(format!("{limit:?}"))))
    }),
    ("raise-sys-admin", |_| {
        let capability = profile::BROKER.capability("CAP_SYS_ADMIN").expect("held");
        raise(capability).map(drop).map_err(|fault| match fault {
            Fault::CapabilityMissing(_) => io::Error::from_raw_os_error(EPERM),
            other => io::Error::other(other.to_string()),
        })
    }),
    ("raise-dac-read-search", |_| {
        let capability = profile::BROKER.capability("CAP_DAC_READ_SEARCH").expect("held");
        raise(capability).map(drop).map_err(|fault| io::Error::other(fault.to_string()))
    }),
    ("make-directory-beneath-root", |_| {
        Ok(mkdirat(kubelet_root(), "made", Mode::from_raw_mode(0o750))?)
    }),
    ("make-file-beneath-root", |_| {
        Ok(mknodat(kubelet_root(), "file", FileType::RegularFile, Mode::from_raw_mode(0o640), 0)?)
    }),
    ("make-device-beneath-root", |_| {
        let mode = Mode::from_raw_mode(0o660);
        Ok(mknodat(kubelet_root(), "disk", FileType::BlockDevice, mode, 0x700)?)
    }),
    ("remove-directory-beneath-root", |_| {
        mkdirat(kubelet_root(), "gone", Mode::from_raw_mode(0o750))?;
        Ok(unlinkat(kubelet_root(), "gone", AtFlags::REMOVEDIR)?)
    }),
    ("make-directory-elsewhere", |_| {
        Ok(mkdirat(CWD, "/tmp/ebs-csi-confine-elsewhere", Mode::from_raw_mode(0o750))?)
    }),
    ("open-beneath-root", |_| {
        Ok(openat(kubelet_root(), "there", OFlags::RDONLY, Mode::empty()).map(drop)?)
    }),
    ("block-device-read-only-switch", |_| {
        // The filter allows the command, which fails because the file is not a disk.
        match rustix::fs::ioctl_blksszget(kubelet_root()) {
            Err(rustix::io::Errno::NOTTY) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }),
    // A connection is accepted, and goes on to another process.
    ("accept-and-hand-over", |_| {
        let held = HELD.get().expect("held");
        let (connection, _) = held.listener.accept()?;
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [connection.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let data = [io::IoSlice::new(b"h")];
        Ok(sendmsg(&held.channel.0, &data, &mut control, SendFlags::empty()).map(drop)?)
    }),
    ("receive-descriptor", |_| {
        let (mut data, flags) = ([0], RecvFlags::DONTWAIT);
        let mut data = [io::IoSliceMut::new(&mut data)];
        let channel = &HELD.get().expect("held").channel.1;
        match recvmsg(channel, &mut data, &mut RecvAncillaryBuffer::default(), flags) {
            // The filter allows the call, and nothing was sent.
            Err(rustix::io::Errno::AGAIN) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }),
    ("read-at-offset", |_| Ok(rustix::io::pread(io::stdin(), &mut [0; 1], 0).map(drop)?)),
    ("name-thread", |_| call(libc::SYS_prctl, [libc::PR_SET_NAME.into(), 0, 0, 0, 0, 0])),
    ("shorten-opened-file", |_| {
        call(libc::SYS_ftruncate, [opened_device()?.as_raw_fd().into(), 0, 0, 0, 0, 0])
    }),
    ("kernel-version", |_| {
        rustix::system::uname();
        Ok(())
    }),
    ("write-to-opened-device", |_| write(&opened_device()?)),
    ("write-to-copy-of-opened-device", |_| {
        write(&rustix::io::fcntl_dupfd_cloexec(opened_device()?, 0)?)
    }),
    ("write-to-kept-descriptor", |_| Ok(rustix::io::write(io::stderr(), b"").map(drop)?)),
    ("write-vector", |_| call(libc::SYS_writev, [2, 0, 0, 0, 0, 0])),
    ("write-at-place", |_| call(libc::SYS_pwrite64, [2, 0, 0, 0, 0, 0])),
    ("replace-kept-descriptor", |_| call(libc::SYS_dup3, [0, 2, 0, 0, 0, 0])),
    ("close-kept-descriptor", |_| call(libc::SYS_close, [2, 0, 0, 0, 0, 0])),
    // The kernel ignores the upper half.
    ("close-kept-descriptor-by-upper-half", |_| {
        call(libc::SYS_close, [UPPER_HALF | 2, 0, 0, 0, 0, 0])
    }),
    ("close-range", |_| call(libc::SYS_close_range, [2, 2, 0, 0, 0, 0])),
    ("close-opened-device", |_| {
        call(libc::SYS_close, [opened_device()?.into_raw_fd().into(), 0, 0, 0, 0, 0])
    }),
    ("signal-by-descriptor", |_| call(libc::SYS_fcntl, [2, libc::F_SETOWN.into(), 0, 0, 0, 0])),
    ("map-own-memory", |_| map(libc::PROT_WRITE.into(), libc::MAP_PRIVATE)),
    ("map-executable-memory", |_| map(libc::PROT_EXEC.into(), libc::MAP_PRIVATE)),
    ("map-executable-memory-with-upper-half", |_| {
        map(UPPER_HALF | i64::from(libc::PROT_EXEC), libc::MAP_PRIVATE)
    }),
    ("map-shared-memory", |_| map(libc::PROT_READ.into(), libc::MAP_SHARED)),
    ("map-validated-shared-memory", |_| map(libc::PROT_READ.into(), libc::MAP_SHARED_VALIDATE)),
    ("make-memory-executable", |_| {
        call(libc::SYS_mprotect, [0, 0, libc::PROT_EXEC.into(), 0, 0, 0])
    }),
    ("fork-with-upper-half", |_| {
        call(libc::SYS_clone, [UPPER_HALF | i64::from(libc::SIGCHLD), 0, 0, 0, 0, 0])
    }),
    ("make-mount-with-nodev", |_| call(libc::SYS_fsmount, [-1, 0, MOUNT_ATTR_NODEV, 0, 0, 0])),
    ("make-mount-without-nodev", |_| call(libc::SYS_fsmount, [-1, 0, 0, 0, 0, 0])),
    ("other-ioctl", |_| Ok(rustix::io::ioctl_fionread(io::stdin()).map(drop)?)),
];

/// Profile, required outcome, the attempts that have it. The supervisor may fork;
/// `start-tool` is killed because `Command` starts a child that shares memory with its parent.
const CASES: &[(&str, AttemptResult, &str)] = &[
    (
        "controller",
        Works,
        "read-own-status read-hosts list-added-certificates tcp-connect udp thread",
    ),
    ("controller", Refused(EACCES), "read-shadow write-core-pattern create-file"),
    ("controller", Refused(EPERM), "start-program"),
    ("controller", Refused(EAFNOSUPPORT), "unix-connect"),
    ("controller", Killed, "become-root open-file-system change-mode raise-sys-admin"),
    ("launcher", Works, "signal-self"),
    (
        "launcher",
        Killed,
        "user-signal read-own-status create-file start-program thread tcp-connect udp \
         unix-connect become-root open-file-system raise-sys-admin",
    ),
    ("router", Works, "unix-connect"),
    (
        "router",
        Killed,
        "read-hosts create-file start-program thread tcp-connect tcp-listen udp unix-listen \
         signal-self become-root open-file-system raise-sys-admin",
    ),
    ("node-agent", Works, "read-own-status unix-connect thread"),
    ("node-agent", Refused(EACCES), "read-hosts write-core-pattern create-file unix-listen"),
    (
        "node-agent",
        Killed,
        "tcp-connect tcp-listen udp vsock start-program become-root open-file-system \
         raise-sys-admin map-executable-memory map-shared-memory make-memory-executable",
    ),
    ("node-agent+vsock", Works, "vsock unix-connect"),
    ("node-agent+vsock", Killed, "tcp-connect udp start-program"),
    ("supervisor", Works, "become-tool read-own-status lower-limits-to-runners"),
    ("supervisor", Refused(EACCES), "become-program read-hosts write-core-pattern create-file"),
    (
        "supervisor",
        Killed,
        "start-tool tcp-connect unix-connect become-root open-file-system fork-with-upper-half",
    ),
    (
        "broker",
        Works,
        "open-file-system raise-dac-read-search block-device-read-only-switch \
         write-to-kept-descriptor close-opened-device map-own-memory receive-descriptor",
    ),
    ("broker", Refused(EPERM), "close-kept-descriptor close-kept-descriptor-by-upper-half"),
    // The filter lets the call pass, and the kernel finds no file system.
    ("broker", Refused(EBADF), "make-mount-with-nodev"),
    (
        "broker",
        Refused(EACCES),
        "write-core-pattern-of-root create-file-of-root open-disk-of-group",
    ),
    (
        "broker",
        Killed,
        "thread open-by-name start-program tcp-connect unix-connect vsock become-root change-mode \
         other-ioctl kernel-version name-thread make-directory-beneath-root read-at-offset write-to-opened-device shorten-opened-file \
         write-to-copy-of-opened-device write-vector write-at-place replace-kept-descriptor \
         close-range signal-by-descriptor map-executable-memory \
         map-executable-memory-with-upper-half map-shared-memory map-validated-shared-memory \
         make-memory-executable make-mount-without-nodev",
    ),
    (
        "directories",
        Works,
        "make-directory-beneath-root make-file-beneath-root remove-directory-beneath-root \
         write-to-kept-descriptor map-own-memory",
    ),
    ("directories", Refused(EPERM), "close-kept-descriptor"),
    ("directories", Refused(EACCES), "make-directory-elsewhere"),
    (
        "directories",
        Killed,
        "make-device-beneath-root open-beneath-root read-hosts start-program unix-connect \
         open-file-system raise-sys-admin thread map-executable-memory map-shared-memory",
    ),
    (
        "opener",
        Works,
        "open-device read-at-offset write-to-kept-descriptor close-opened-device map-own-memory",
    ),
    ("opener", Refused(EPERM), "close-kept-descriptor close-kept-descriptor-by-upper-half"),
    (
        "opener",
        Refused(EACCES),
        "open-hosts open-disk-of-group write-core-pattern-of-root create-file-of-root",
    ),
    (
        "opener",
        Killed,
        "open-by-name block-device-read-only-switch kernel-version make-directory-beneath-root \
         start-program thread unix-connect become-root open-file-system raise-sys-admin \
         write-to-opened-device write-to-copy-of-opened-device write-vector write-at-place \
         replace-kept-descriptor close-range signal-by-descriptor map-executable-memory \
         map-shared-memory make-memory-executable shorten-opened-file name-thread \
         accept-and-hand-over",
    ),
    ("relay", Works, "accept-and-hand-over write-to-kept-descriptor map-own-memory"),
    ("relay", Refused(EPERM), "close-kept-descriptor"),
    (
        "relay",
        Killed,
        "read-hosts open-hosts open-device create-file tcp-connect unix-connect unix-listen vsock \
         receive-descriptor start-program thread become-root open-file-system raise-sys-admin \
         make-directory-beneath-root block-device-read-only-switch write-vector \
         replace-kept-descriptor map-executable-memory map-shared-memory",
    ),
];

fn opened_device() -> io::Result<OwnedFd> {
    Ok(openat2(CWD, "/dev/null", OFlags::RDWR, Mode::empty(), ResolveFlags::empty())?)
}

fn write(descriptor: &OwnedFd) -> io::Result<()> {
    Ok(rustix::io::write(descriptor, b"x").map(drop)?)
}

fn map(protection: i64, flags: i32) -> io::Result<()> {
    let flags = flags | libc::MAP_ANONYMOUS;
    call(libc::SYS_mmap, [0, 4096, protection, flags.into(), -1, 0])
}

/// Calls openat2(2), the only call with which the broker may open a file.
fn held_open(path: &Path, flags: OFlags) -> io::Result<()> {
    let mode = if flags.contains(OFlags::CREATE) { 0o600 } else { 0 };
    let how = ResolveFlags::empty();
    Ok(openat2(CWD, path, flags, Mode::from_raw_mode(mode), how).map(drop)?)
}

static ROOT: OnceLock<File> = OnceLock::new();
static HELD: OnceLock<Held> = OnceLock::new();

/// The sockets that a process has before its confinement.
struct Held {
    /// A listener at which a connection waits.
    listener: UnixListener,
    _connection: UnixStream,
    channel: (OwnedFd, OwnedFd),
}

impl Held {
    fn new(scratch: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(scratch.join("listener"))?;
        let connection = UnixStream::connect(scratch.join("listener"))?;
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let channel = socketpair(family, SocketType::SEQPACKET, flags, None)?;
        Ok(Self { listener, _connection: connection, channel })
    }
}

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
    if !rustix::process::geteuid().is_root() {
        println!("skipped: confinement starts as root");
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'));
    let mut failed = 0;
    let cases = CASES.iter().flat_map(|(profile, expected, attempts)| {
        attempts.split(' ').map(move |attempt| (profile, attempt, expected))
    });
    for (profile, attempt, expected) in cases {
        let name = format!("{profile}: {attempt} is {expected:?}");
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        let found = run(profile, attempt);
        let good = found.as_ref().is_ok_and(|found| found == expected);
        println!("test {name} ... {}", if good { "ok" } else { "FAILED" });
        if !good {
            println!("    found {found:?}");
            failed += 1;
        }
    }
    let is_used =
        |name: &str| CASES.iter().any(|(.., attempts)| attempts.split(' ').any(|one| one == name));
    for (unused, _) in ATTEMPTS.iter().filter(|(name, _)| !is_used(name)) {
        println!("attempt {unused:?} belongs to no case");
        failed += 1;
    }
    ExitCode::from(u8::from(failed > 0))
}

/// Exit status of a child that could not be confined.
const NOT_CONFINED: u8 = 250;
/// Exit status of a child whose attempt failed without an errno.
const OTHER: u8 = 251;

fn run(profile: &str, attempt: &str) -> io::Result<AttemptResult> {
    let scratch = Scratch::new()?;
    let status = Command::new(std::env::current_exe()?)
        .args(["--child", profile, attempt])
        .arg(&scratch.0)
        .stdin(std::process::Stdio::null())
        .status()?;
    match (status.signal(), status.code()) {
        (Some(libc::SIGSYS), _) => Ok(Killed),
        (Some(libc::SIGTERM), _) if attempt == "signal-self" => Ok(Works),
        (_, Some(0)) => Ok(Works),
        (_, Some(code)) if code < i32::from(NOT_CONFINED) => Ok(Refused(code)),
        _ => Err(io::Error::other(status.to_string())),
    }
}

fn child(profile: &str, attempt: &str, scratch: &Path) -> ExitCode {
    let Some((_, action)) = ATTEMPTS.iter().find(|(name, _)| *name == attempt) else {
        return ExitCode::from(NOT_CONFINED);
    };
    // A choice of system calls stands behind the profile's name.
    let (profile, vsock) = match profile.split_once('+') {
        Some((profile, "vsock")) => (profile, Some("vsock")),
        _ => (profile, None),
    };
    let outcome = profile::named(profile)
        .ok_or_else(|| "no such profile".to_owned())
        .and_then(|profile| confine(profile, vsock, scratch).map_err(|fault| fault.to_string()));
    if let Err(problem) = outcome {
        println!("{profile}: {problem}");
        return ExitCode::from(NOT_CONFINED);
    }
    match action(scratch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(
            error.raw_os_error().and_then(|errno| u8::try_from(errno).ok()).unwrap_or(OTHER),
        ),
    }
}

fn confine(
    profile: &'static Profile,
    choice: Option<&'static str>,
    scratch: &Path,
) -> Result<(), Fault> {
    let root = File::open(scratch.join("kubelet")).expect("the parent made it");
    ROOT.set(root).expect("set once");
    HELD.set(Held::new(scratch).expect("sockets")).ok().expect("set once");
    let places = Places::new()
        .with("kubelet-root", scratch.join("kubelet"))?
        .with("socket-directory", scratch)?;
    let places = ebs_csi_confine::tool::programs(places)?;
    Entering::begin(profile)?.choose(choice)?.identity()?.files(&places)?.calls()?;
    Ok(())
}

/// A directory that everyone may write to, so that only the profile can refuse.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("ebs-csi-confine-{}", std::process::id()));
        fs::create_dir(&path)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        let kubelet = path.join("kubelet");
        fs::create_dir(&kubelet)?;
        fs::write(kubelet.join("there"), "")?;
        // A device node with the group that owns disks; no driver has this major number
        // (linux/major.h).
        let disk = path.join("disk");
        let mode = Mode::from_raw_mode(0o660);
        mknodat(CWD, &disk, FileType::BlockDevice, mode, 60 << 8)?;
        std::os::unix::fs::chown(&disk, None, Some(6))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
