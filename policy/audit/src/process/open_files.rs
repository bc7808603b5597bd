//! What a process has open: files, disks and sockets, by its descriptors.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use ebs_csi_policy::profile::NodeOwner;
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::sys::is_end;

/// `O_PATH` of asm-generic/fcntl.h: such a descriptor gives no right on the file's content.
const PATH_ONLY: u32 = 0o10_000_000;
/// `O_ACCMODE`, and its values.
const ACCESS: u32 = 3;
const READ_ONLY: u32 = 0;
const WRITE_ONLY: u32 = 1;
/// `/dev/null`: major 1, minor 3.
const NULL: u64 = 1 << 8 | 3;
/// The kernel's name of the protocol of vsock.
const VSOCK: &str = "AF_VSOCK";
/// How often a descriptor is looked at that leads elsewhere each time.
const ATTEMPTS: usize = 8;
/// The most descriptors that are read of a process: no profile has as many.
const MOST_DESCRIPTORS: usize = 70_000;

/// An open file, disk or socket. Directories and pipes are left out: a directory's descriptor gives
/// no right that its user lacks, and what a pipe leads to is open elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) descriptor: u32,
    /// The path as the kernel shows it. Bytes that are no UTF-8 are replaced.
    pub(crate) path: String,
    pub(crate) kind: OpenFileKind,
}

#[derive(Clone, Debug)]
pub(crate) enum OpenFileKind {
    File(FileAccess),
    Disk,
    Null,
    OtherDevice(FileAccess),
    Socket(Socket),
}

/// How a file is open, and who else may open it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileAccess {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) owner: NodeOwner,
    /// No name leads to the file.
    pub(crate) is_nameless: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Socket {
    /// The kernel's name of the protocol: `TCPv6`, `UNIX-STREAM`, `AF_VSOCK`.
    pub(crate) protocol: String,
    /// The local port of a TCP socket.
    pub(crate) port: Option<u16>,
    pub(crate) listens: bool,
    /// The address of the other end of a TCP connection.
    pub(crate) peer: Option<String>,
    /// Why port, state and peer are not known.
    pub(crate) unseen: Option<String>,
}

/// Reads the descriptors of all these threads of a process, which may each have a table of their
/// own. The directories are those of the threads in `/proc`.
pub(crate) fn of_threads(
    process: u32,
    directories: impl IntoIterator<Item = PathBuf>,
) -> io::Result<Vec<OpenFile>> {
    let mut found = BTreeMap::new();
    for directory in directories {
        for entry in ended_is_empty(fs::read_dir(directory.join("fd")).map(Vec::from_iter))? {
            let Some(entry) = ended_is_empty(entry.map(Some))? else { continue };
            let name = entry.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let link = entry.path();
            let Some(target) = ended_is_empty(fs::read_link(&link).map(Some))? else { continue };
            let path = String::from_utf8_lossy(target.as_os_str().as_bytes()).into_owned();
            let key = (number, path);
            if found.contains_key(&key) {
                continue;
            }
            let info = directory.join("fdinfo").join(&name);
            if let Some(kind) = ended_is_empty(kind(process, number, &link, &info))? {
                found.insert(key, kind);
            }
            if found.len() > MOST_DESCRIPTORS {
                return Err(io::Error::other("it has more descriptors than are read"));
            }
        }
    }
    let open = found.into_iter();
    Ok(open.map(|((descriptor, path), kind)| OpenFile { descriptor, path, kind }).collect())
}

/// Returns the default for what has ended or was closed meanwhile.
fn ended_is_empty<T: Default>(read: io::Result<T>) -> io::Result<T> {
    match read {
        Err(error) if is_end(&error) => Ok(T::default()),
        other => other,
    }
}

/// Returns what a descriptor leads to; `None` for what gives no right on content.
fn kind(process: u32, number: u32, link: &Path, info: &Path) -> io::Result<Option<OpenFileKind>> {
    let info = String::from_utf8_lossy(&fs::read(info)?).into_owned();
    let flags = info
        .lines()
        .find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok())
        .ok_or_else(|| io::Error::other("a descriptor without flags"))?;
    if flags & PATH_ONLY != 0 {
        return Ok(None);
    }
    let found = fs::metadata(link)?;
    let access = FileAccess {
        read: flags & ACCESS != WRITE_ONLY,
        write: flags & ACCESS != READ_ONLY,
        owner: NodeOwner { uid: found.uid(), gid: found.gid(), mode: found.mode() & 0o777 },
        is_nameless: found.nlink() == 0,
    };
    let file_type = found.file_type();
    Ok(match () {
        () if file_type.is_file() => Some(OpenFileKind::File(access)),
        () if file_type.is_block_device() => Some(OpenFileKind::Disk),
        () if file_type.is_char_device() && found.rdev() == NULL => Some(OpenFileKind::Null),
        () if file_type.is_char_device() => Some(OpenFileKind::OtherDevice(access)),
        () if file_type.is_socket() => Some(OpenFileKind::Socket(socket(process, number, link)?)),
        () => None,
    })
}

/// Returns the kernel's name of a socket's protocol. Unlike `/proc/net`, it is there for each
/// family, for a socket in any state, and for one of another network namespace.
fn protocol(link: &Path) -> io::Result<String> {
    let mut name = [0; 64];
    let length = rustix::fs::getxattr(link, c"system.sockprotoname", &mut name[..])?;
    let name = name.get(..length).unwrap_or_default();
    Ok(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
}

/// Reads a socket. A copy of the descriptor is asked, which tells the state of a socket of any
/// network namespace; tables in `/proc` have neither those nor vsock.
fn socket(process: u32, number: u32, link: &Path) -> io::Result<Socket> {
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        let protocol = protocol(link)?;
        let is_tcp = protocol.starts_with("TCP");
        if !is_tcp && protocol != VSOCK {
            return Ok(Socket { protocol, ..Socket::default() });
        }
        match copy(process, number) {
            Ok(copy) if is_same(&copy, link)? => {
                let listens = socket_acceptconn(&copy)?;
                let stream = is_tcp.then(|| TcpStream::from(copy));
                let address = stream.as_ref().and_then(|stream| stream.local_addr().ok());
                let peer = stream.as_ref().and_then(|stream| stream.peer_addr().ok());
                return Ok(Socket {
                    protocol,
                    port: address.map(|address| address.port()),
                    listens,
                    peer: peer.map(|peer| peer.to_string()),
                    unseen: None,
                });
            }
            Ok(_) => why = "it leads elsewhere each time".to_owned(),
            Err(error) => why = error.to_string(),
        }
        // A descriptor that was closed meanwhile has no protocol either.
    }
    Ok(Socket { protocol: protocol(link)?, unseen: Some(why), ..Socket::default() })
}

fn copy(process: u32, descriptor: u32) -> io::Result<OwnedFd> {
    let number = |number: u32| i32::try_from(number).map_err(io::Error::other);
    let process = Pid::from_raw(number(process)?).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number(descriptor)?, PidfdGetfdFlags::empty())?)
}

/// Returns whether a copied descriptor leads to where the link does: a thread may have descriptors
/// of its own, and any may have been closed and opened meanwhile.
fn is_same(copy: &OwnedFd, link: &Path) -> io::Result<bool> {
    let (copied, linked) = (rustix::fs::fstat(copy)?, fs::metadata(link)?);
    Ok((copied.st_dev, copied.st_ino) == (linked.dev(), linked.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    fn read(file: &impl AsRawFd) -> Socket {
        let number = file.as_raw_fd().to_string();
        let link = Path::new("/proc/self/fd").join(&number);
        socket(std::process::id(), number.parse().unwrap(), &link).unwrap()
    }

    #[test]
    fn listener_and_both_ends_are_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, client_address) = listener.accept().unwrap();
        let found = read(&listener);
        assert_eq!((found.port, found.listens, found.peer), (Some(port), true, None));
        let found = read(&server);
        assert_eq!((found.port, found.listens), (Some(port), false));
        assert_eq!(found.peer, Some(client_address.to_string()));
        let found = read(&client);
        assert_eq!(found.port, Some(client_address.port()));
        assert_eq!(found.peer, Some(format!("127.0.0.1:{port}")));
        assert_eq!((&*found.protocol, found.unseen), ("TCP", None));
    }

    /// As the descriptor of a thread that has a table of its own.
    #[test]
    fn descriptor_of_other_table_is_not_seen() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [this, other] = listeners.each_ref().map(|one| one.as_raw_fd().to_string());
        let link = Path::new("/proc/self/fd").join(&other);
        let found = socket(std::process::id(), this.parse().unwrap(), &link).unwrap();
        assert_eq!((found.port, found.listens), (None, false));
        assert!(found.unseen.is_some());
    }
}
