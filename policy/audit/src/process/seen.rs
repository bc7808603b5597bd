//! What is read of a process beside its own entries in `/proc`: namespaces, socket files, mounts
//! and the content of its program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fstat, statx};
use sha2::{Digest as _, Sha256};

use ebs_csi_policy::profile::socket_file::SOCKETS;

use super::{HELPER, Process};
use crate::sys::open_in_root;

/// The kinds of namespaces, as the kernel names them.
const KINDS: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
/// The directories that hold the places of volumes, beneath the kubelet root.
const PLACES: [&str; 2] = ["plugins/kubernetes.io/csi", "pods"];
const DEFAULT_ROOT: &str = "/var/lib/kubelet";
/// The longest table of mounts that is read: 100,000 mounts of 640 bytes.
const MOST_MOUNTS: u64 = 64 << 20;

/// The namespaces of a process by their kinds; several of a kind where its threads differ.
pub(crate) type Namespaces = BTreeMap<String, BTreeSet<String>>;

/// Owner and mode of a socket's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOwner {
    pub(crate) is_socket: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

/// What was read, or why it was not.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) namespaces: Result<Namespaces, String>,
    /// The node's namespaces, and where they were read.
    pub(crate) of_node: Result<(Namespaces, String), String>,
    /// The files of the unix sockets that its flags name.
    pub(crate) socket_files: Vec<(String, Result<SocketOwner, String>)>,
    /// The directories for volumes, and whether mounts beneath them are seen elsewhere.
    pub(crate) mounts: Result<Vec<(String, bool)>, String>,
    /// SHA-256 of the program; `None` until it is asked for.
    pub(crate) digest: Option<Result<String, String>>,
    /// The process ended while it was read.
    pub(crate) has_ended: bool,
}

impl Default for Seen {
    fn default() -> Self {
        let unread = "not read".to_owned();
        Self {
            namespaces: Err(unread.clone()),
            of_node: Err(unread.clone()),
            socket_files: Vec::new(),
            mounts: Err(unread),
            digest: None,
            has_ended: false,
        }
    }
}

impl Seen {
    /// Reads all but the digest.
    pub(super) fn of(process: &Process) -> Self {
        let why = |error: io::Error| error.to_string();
        // Which of them the process serves is known when its profile is.
        let paths: BTreeSet<String> = SOCKETS
            .iter()
            .flat_map(|row| process.values_of(row.flag).filter_map(|value| row.path(value)))
            .collect();
        let is_helper = process.program == HELPER;
        Self {
            namespaces: of_process(process).map_err(why),
            of_node: of_node().map_err(why),
            socket_files: paths
                .into_iter()
                .map(|path| {
                    let owner = owner(process, &path).map_err(why);
                    (path, owner)
                })
                .collect(),
            mounts: if is_helper {
                mounts(process).map_err(why)
            } else {
                Err("not read".to_owned())
            },
            ..Self::default()
        }
    }
}

/// Returns the SHA-256 of a process's program, 64 hexadecimal digits.
pub(super) fn digest(pid: u32) -> io::Result<String> {
    sha256(File::open(format!("/proc/{pid}/exe"))?)
}

fn sha256(mut file: File) -> io::Result<String> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => hash.update(buffer.get(..length).unwrap_or_default()),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads the namespaces of some directories of `/proc`.
fn read(directories: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<Namespaces> {
    let mut found = Namespaces::new();
    for directory in directories {
        for kind in KINDS {
            let name = fs::read_link(directory.as_ref().join("ns").join(kind))?;
            found.entry(kind.to_owned()).or_default().insert(name.to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

/// Reads the namespaces of all threads of a process.
fn of_process(process: &Process) -> io::Result<Namespaces> {
    let tasks = PathBuf::from(format!("/proc/{}/task", process.pid));
    read(process.threads.iter().map(|thread| tasks.join(thread.number.to_string())))
}

/// Returns the namespaces of the node, and where they were read: those of process 1, and this
/// process's own, which are the same outside a container.
fn of_node() -> io::Result<(Namespaces, String)> {
    let own = Path::new("/proc/self");
    match read([own, Path::new("/proc/1")]) {
        Ok(found) => Ok((found, "those of the auditor and process 1".to_owned())),
        Err(_) => {
            let whose = "those of the auditor; process 1 does not show its own";
            Ok((read([own])?, whose.to_owned()))
        }
    }
}

fn owner(process: &Process, path: &str) -> io::Result<SocketOwner> {
    let file = open_in_root(process.pid, path, OFlags::NOFOLLOW)?;
    let found = fstat(&file)?;
    Ok(SocketOwner {
        is_socket: FileType::from_raw_mode(found.st_mode) == FileType::Socket,
        uid: found.st_uid,
        gid: found.st_gid,
        mode: found.st_mode & 0o7777,
    })
}

/// Returns the directories for volumes, and whether mounts beneath them are seen elsewhere.
fn mounts(process: &Process) -> io::Result<Vec<(String, bool)>> {
    let root = process.values_of("--kubelet-root").last().unwrap_or(DEFAULT_ROOT);
    let shared = shared_mounts(process)?;
    let held = PLACES.iter().map(|place| {
        let (place, id) = held(process, format!("{root}/{place}"))?;
        Ok((place, shared.contains(&id)))
    });
    held.collect()
}

/// Returns the place, or the deepest directory above it that exists, and the number of its mount.
fn held(process: &Process, mut place: String) -> io::Result<(String, u64)> {
    loop {
        match mount_of(process, &place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && place.len() > 1 => {
                let parent = place.rfind('/').unwrap_or_default();
                place.truncate(parent.max(1));
            }
            other => return other.map(|id| (place, id)),
        }
    }
}

/// Returns the number of the mount that a process finds at a path.
fn mount_of(process: &Process, path: &str) -> io::Result<u64> {
    let directory = open_in_root(process.pid, path, OFlags::DIRECTORY)?;
    let found = statx(&directory, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(io::Error::other("this kernel does not number mounts (it is older than 5.8)"));
    }
    Ok(found.stx_mnt_id)
}

/// Returns the numbers of the mounts beneath which mounts propagate.
fn shared_mounts(process: &Process) -> io::Result<BTreeSet<u64>> {
    let table = File::open(format!("/proc/{}/mountinfo", process.pid))?;
    let mut table = BufReader::new(table.take(MOST_MOUNTS));
    let (mut found, mut line) = (BTreeSet::new(), Vec::new());
    while table.read_until(b'\n', &mut line)? > 0 {
        found.extend(shared_mount(&line));
        line.clear();
    }
    Ok(found)
}

/// Returns the number of the mount in a line of a mountinfo, if it is a shared one.
pub(super) fn shared_mount(line: &[u8]) -> Option<u64> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    // After root, mount point and options stand the optional fields, up to a hyphen.
    let mut optional = words.skip(5).take_while(|word| *word != b"-");
    optional.any(|word| word.starts_with(b"shared:")).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The kernel writes a space in a name as an escape, so that no name is a field.
        #[test]
        fn any_line_is_shared_by_its_own_fields(
            line in prop::collection::vec(any::<u8>(), 0..80),
            name in "[^ \n]{1,20}",
        ) {
            let _ = shared_mount(&line);
            let private = format!("36 35 98:0 /{name} /{name} rw master:1 - {name} {name} {name}");
            prop_assert_eq!(shared_mount(private.as_bytes()), None);
        }
    }

    #[test]
    fn shared_mounts_are_read_from_optional_fields() {
        let line = |optional: &str| format!("36 35 98:0 /a /b rw{optional} - ext4 /dev/x rw");
        assert_eq!(shared_mount(line(" shared:1").as_bytes()), Some(36));
        assert_eq!(shared_mount(line(" master:2 shared:7").as_bytes()), Some(36));
        assert_eq!(shared_mount(line(" master:2").as_bytes()), None);
        assert_eq!(shared_mount(line("").as_bytes()), None);
        // A name with this word in it stands elsewhere.
        assert_eq!(shared_mount(b"36 35 98:0 /shared:1 /b rw - ext4 shared:1 rw"), None);
        assert_eq!(shared_mount(b"\xff"), None);
    }

    #[test]
    fn digest_is_that_of_content() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("abc");
        fs::write(&file, "abc").unwrap();
        // FIPS 180-4, the example of one block.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(File::open(&file).unwrap()).unwrap(), expected);
    }
}
