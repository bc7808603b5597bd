//! What a process has open: files, disks and sockets, by its descriptors.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::{fs, io};

use ebs_csi_policy::profile::NodeOwner;
use rustix::io::Errno;
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
/// The state of a TCP socket that listens, as `/proc/net/tcp` writes it.
const LISTENING: &str = "0A";
/// The kernel's name of the protocol of vsock.
const VSOCK: &str = "AF_VSOCK";

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
    pub(crate) port: Option<u16>,
    pub(crate) listens: bool,
}

/// Reads the descriptors of all these threads of a process, which may each have a table of their
/// own. The directories are those of the threads in `/proc`.
pub(crate) fn of_threads<'a>(
    process: u32,
    directories: impl IntoIterator<Item = &'a Path>,
) -> io::Result<Vec<OpenFile>> {
    let mut found = BTreeMap::new();
    let mut ports = None;
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
        }
        // The network of a thread may be its own.
        if found.values().any(
            |kind| matches!(kind, OpenFileKind::Socket(one) if one.protocol.starts_with("TCP")),
        ) && ports.is_none()
        {
            ports = Some(tcp_sockets(directory));
        }
    }
    let ports = ports.unwrap_or_default();
    Ok(found
        .into_iter()
        .map(|((descriptor, path), mut kind)| {
            if let OpenFileKind::Socket(socket) = &mut kind
                && let Some((port, listens)) = inode(&path).and_then(|inode| ports.get(&inode))
            {
                (socket.port, socket.listens) = (Some(*port), *listens);
            }
            OpenFile { descriptor, path, kind }
        })
        .collect())
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
        () if file_type.is_socket() => {
            let protocol = protocol(link)?;
            let listens = protocol == VSOCK && is_listener(process, number)?;
            Some(OpenFileKind::Socket(Socket { protocol, port: None, listens }))
        }
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

/// Returns whether a descriptor of a process is a listener. No table in `/proc` has the sockets of
/// vsock, so that a copy of the descriptor is asked.
fn is_listener(process: u32, descriptor: u32) -> io::Result<bool> {
    let number = |number: u32| i32::try_from(number).map_err(io::Error::other);
    let process = Pid::from_raw(number(process)?).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    match pidfd_getfd(process, number(descriptor)?, PidfdGetfdFlags::empty()) {
        // It was closed meanwhile.
        Err(Errno::BADF) => Err(io::ErrorKind::NotFound.into()),
        copy => Ok(socket_acceptconn(copy?)?),
    }
}

/// Returns the number in `socket:[123]`.
fn inode(path: &str) -> Option<u64> {
    path.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns the TCP sockets of a thread's network and of this process's by their inodes: the local
/// port, and whether they listen. A socket may have been bound before a change of the network.
fn tcp_sockets(directory: &Path) -> BTreeMap<u64, (u16, bool)> {
    let mut found = BTreeMap::new();
    for network in [&directory.join("net"), Path::new("/proc/self/net")] {
        for table in ["tcp", "tcp6"] {
            // A kernel without IPv6 has no table of it.
            let text = fs::read(network.join(table)).unwrap_or_default();
            found.extend(String::from_utf8_lossy(&text).lines().filter_map(tcp_row));
        }
    }
    found
}

fn tcp_row(row: &str) -> Option<(u64, (u16, bool))> {
    let words: Vec<&str> = row.split_ascii_whitespace().collect();
    let port = u16::from_str_radix(words.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    Some((words.get(9)?.parse().ok()?, (port, *words.get(3)? == LISTENING)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_rows_give_port_and_state() {
        let row = "   0: 0100007F:264F 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                   65530        0 59424 1 0000000000000000 100 0 0 10 0";
        assert_eq!(tcp_row(row), Some((59424, (9807, true))));
        let row = row.replace(" 0A ", " 01 ");
        assert_eq!(tcp_row(&row), Some((59424, (9807, false))));
        assert_eq!(tcp_row("  sl  local_address rem_address   st"), None);
    }
}
