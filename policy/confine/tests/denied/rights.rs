//! Each right of Landlock at each place of a profile, granted or not; TCP and scopes.
//!
//! The child is root in a directory that has all places, so that Landlock alone can refuse.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ebs_csi_confine::{Entering, Places, landlock_abi};
use ebs_csi_policy::profile::{
    FilePlace, FileRight, FileRule, Files, Profile, SUPERVISOR, Scope, Tcp,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use crate::outcome;
use crate::sys::call;

type Use = fn(&Path) -> io::Result<()>;

/// The rights of landlock(7): the right that a row may grant, the ABI that has it first, its use
/// beneath a place.
const RIGHTS: &[(&str, Option<FileRight>, u8, Use)] = &[
    ("execute", Some(FileRight::Execute), 1, |place| {
        // The kernel may start the file, and finds no program in it.
        but(named(libc::SYS_execve, &place.join("file")), Errno::NOEXEC)
    }),
    ("read-file", Some(FileRight::ReadFile), 1, |place| File::open(place.join("file")).map(drop)),
    ("read-dir", Some(FileRight::ReadDir), 1, |place| fs::read_dir(place).map(drop)),
    ("write-file", Some(FileRight::WriteFile), 1, |place| {
        File::options().write(true).open(place.join("file")).map(drop)
    }),
    ("make-dir", Some(FileRight::MakeDir), 1, |place| fs::create_dir(place.join("made-dir"))),
    ("make-reg", Some(FileRight::MakeReg), 1, |place| make(place, FileType::RegularFile)),
    ("make-sock", Some(FileRight::MakeSock), 1, |place| make(place, FileType::Socket)),
    ("remove-dir", Some(FileRight::RemoveDir), 1, |place| fs::remove_dir(place.join("folder"))),
    ("remove-file", Some(FileRight::RemoveFile), 1, |place| fs::remove_file(place.join("spare"))),
    ("ioctl-dev", Some(FileRight::IoctlDev), 5, |place| {
        // The kernel asks the device, which is no disk.
        let device = File::open(place.join("device"))?;
        but(rustix::fs::ioctl_blksszget(device).map(drop).map_err(io::Error::from), Errno::NOTTY)
    }),
    ("resolve-unix", Some(FileRight::ResolveUnix), 9, |place| {
        UnixStream::connect(place.join("socket")).map(drop)
    }),
    ("make-char", None, 1, |place| make(place, FileType::CharacterDevice)),
    ("make-block", None, 1, |place| make(place, FileType::BlockDevice)),
    ("make-fifo", None, 1, |place| make(place, FileType::Fifo)),
    ("make-sym", None, 1, |place| symlink("file", place.join("made-link"))),
    ("refer", None, 2, |place| fs::rename(place.join("moved"), place.join("kept/moved"))),
    ("truncate", None, 3, |place| named(libc::SYS_truncate, &place.join("file"))),
];

fn make(place: &Path, kind: FileType) -> io::Result<()> {
    let name = place.join(format!("made-{kind:?}"));
    // Of a device, the number that no driver has.
    Ok(mknodat(CWD, name, kind, Mode::from_raw_mode(0o600), 60 << 8)?)
}

/// Makes a system call with a path and zeros.
fn named(number: i64, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let pointer = i64::try_from(path.as_ptr().expose_provenance()).map_err(io::Error::other)?;
    call(number, [pointer, 0, 0, 0, 0, 0])
}

/// Takes this error for success.
fn but(result: io::Result<()>, good: Errno) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(good.raw_os_error()) => Ok(()),
        other => other,
    }
}

/// Makes what the uses need. The listener is outside every domain.
fn furnish(place: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    for folder in ["folder", "kept"] {
        fs::create_dir_all(place.join(folder))?;
    }
    for file in ["file", "spare", "moved"] {
        fs::write(place.join(file), "no program")?;
    }
    fs::set_permissions(place.join("file"), fs::Permissions::from_mode(0o755))?;
    // linux/mem.c: /dev/null
    let (device, mode) = (place.join("device"), Mode::from_raw_mode(0o600));
    mknodat(CWD, device, FileType::CharacterDevice, mode, (1 << 8) | 3)?;
    UnixListener::bind(place.join("socket"))
}

/// Returns where a place stands in the directory that the child takes for `/`.
fn path(place: FilePlace) -> PathBuf {
    match place {
        FilePlace::Path(path) => PathBuf::from(path),
        FilePlace::Named(name) => Path::new("/named").join(name),
    }
}

pub(crate) fn attempt(profile: &'static Profile, scratch: &Path) -> ExitCode {
    // An inherited domain is the supervisor's.
    let domain =
        if matches!(profile.landlock.files, Files::Inherited) { SUPERVISOR } else { profile };
    let rows: Option<&[FileRule]> = match domain.landlock.files {
        Files::Listed(rows) => Some(rows),
        Files::Free | Files::Inherited => None,
    };
    let beneath = |place: &Path| scratch.join(place.strip_prefix("/").expect("absolute"));
    let elsewhere = PathBuf::from("/elsewhere");
    let mut places: Vec<PathBuf> =
        rows.into_iter().flatten().map(|row| path(row.place)).chain([elsewhere]).collect();
    places.sort();
    places.dedup();
    let mut differences = Vec::new();
    let all = places.iter().map(PathBuf::as_path).chain([Path::new("/before")]);
    let _listeners: Vec<_> =
        all.map(|place| furnish(&beneath(place)).expect("the child is root")).collect();
    for (right, _, _, using) in RIGHTS {
        let result = using(&beneath(Path::new("/before")));
        result.unwrap_or_else(|error| panic!("{right} without Landlock: {error}"));
    }

    let outside = format!("ebs-csi-denied-{}", std::process::id());
    let outside = SocketAddr::from_abstract_name(outside).expect("an abstract address");
    let _listener = UnixListener::bind_addr(&outside).expect("a listener");
    let domains = if domain.name == profile.name { vec![profile] } else { vec![domain, profile] };
    let domains: Vec<_> =
        domains.into_iter().map(|one| Entering::begin(one).expect("one thread")).collect();
    rustix::process::chroot(scratch).expect("the child is root");
    let named = rows.into_iter().flatten().filter_map(|row| match row.place {
        FilePlace::Named(name) => Some((name, path(row.place))),
        FilePlace::Path(_) => None,
    });
    let held = named.fold(Places::new(), |held, (name, path)| held.with(name, path).expect("made"));
    for one in domains {
        one.files(&held).expect("Landlock");
    }

    let abi = landlock_abi();
    let mut compare = |what: String, since: u8, result: io::Result<()>, wanted: bool| {
        let refused = result.as_ref().is_err_and(|error| {
            let refusals = [Errno::ACCESS, Errno::PERM, Errno::XDEV].map(Errno::raw_os_error);
            error.raw_os_error().is_some_and(|errno| refusals.contains(&errno))
        });
        if abi >= since && (result.is_ok(), refused) != (wanted, !wanted) {
            differences.push(format!("{what}: {result:?}"));
        }
    };
    let granted = |place: &Path, right| {
        rows.is_none_or(|rows| {
            let mut covering = rows.iter().filter(|row| place.starts_with(path(row.place)));
            covering.any(|row| row.rights.contains(&right))
        })
    };
    for place in &places {
        for (name, right, since, using) in RIGHTS {
            let wanted = match right {
                // The device is opened for reading first.
                Some(FileRight::IoctlDev) => {
                    granted(place, FileRight::IoctlDev) && granted(place, FileRight::ReadFile)
                }
                Some(right) => granted(place, *right),
                None => rows.is_none(),
            };
            compare(format!("{name} at {}", place.display()), *since, using(place), wanted);
        }
    }
    let is_free = profile.landlock.tcp == Tcp::Free;
    compare("bind".to_owned(), 4, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop), is_free);
    let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, 9)).map(drop);
    compare("connect".to_owned(), 4, but(connected, Errno::CONNREFUSED), is_free);
    let reaches = |scope| !profile.landlock.scopes.contains(&scope);
    let connected = UnixStream::connect_addr(&outside).map(drop);
    compare("abstract socket".to_owned(), 6, connected, reaches(Scope::AbstractUnixSocket));
    let parent = rustix::process::getppid().expect("a parent");
    let signalled = rustix::process::test_kill_process(parent).map_err(io::Error::from);
    compare("signal".to_owned(), 6, signalled, reaches(Scope::Signal));
    outcome(&differences)
}
