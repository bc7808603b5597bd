//! A unix socket that replaces another process's socket in one step, and that only its own process
//! removes.
//!
//! A second agent on a node (a DaemonSet update with surge) must not take over the sockets of the
//! running agent before it is sure to serve, and the sockets must be answered at every moment. The
//! socket is therefore bound under a temporary name, and a rename puts it in place.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use ebs_csi_proto::endpoint::{is_socket, remove_socket};
use rustix::fs::{Mode, OFlags};

/// A socket that listens under a temporary name. A drop removes the temporary file.
#[derive(Debug)]
pub struct Prepared {
    listener: UnixListener,
    temporary: SocketFile,
    path: PathBuf,
}

impl Prepared {
    /// Binds beside `path`, with these permission bits: who may write to the socket may connect.
    /// The temporary name begins with a dot: kubelet ignores such files in its directory.
    ///
    /// # Errors
    /// As bind(2); `AlreadyExists` when something other than a socket has one of the two names.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        is_socket(path)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        let temporary = directory.join(hidden);
        remove_socket(&temporary)?;
        let (listener, temporary) = SocketFile::bind(&temporary)?;
        // A confined process may not change the mode, and need not.
        std::fs::set_permissions(&temporary.path, Permissions::from_mode(mode))?;
        Ok(Self { listener, temporary, path: path.to_owned() })
    }

    /// Renames the socket to its final path. The former listener keeps its connections and gets no
    /// new ones.
    ///
    /// # Errors
    /// As rename(2).
    pub fn take_over(mut self) -> io::Result<(UnixListener, SocketFile)> {
        std::fs::rename(&self.temporary.path, &self.path)?;
        self.temporary.path = self.path;
        Ok((self.listener, self.temporary))
    }
}

/// The file of a socket that this process has bound. A drop removes the file where the process may
/// do that.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The file itself, whichever file has its name.
    file: File,
}

/// Which file has the name of a socket file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This file.
    This,
    /// Another file, or the process may not see whether there is one.
    Another,
    /// No file.
    Nobody,
}

impl SocketFile {
    /// Binds at `path`, where no file may exist.
    ///
    /// # Errors
    /// As bind(2).
    pub fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        let listener = UnixListener::bind(path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let bound = Self {
            path: path.to_owned(),
            file: rustix::fs::open(path, flags, Mode::empty())?.into(),
        };
        listener.set_nonblocking(true)?;
        Ok((listener, bound))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns which file has the path now.
    pub fn holder(&self) -> Holder {
        // A file whose status cannot be read counts as present.
        if self.file.metadata().map_or(1, |found| found.nlink()) > 0 {
            return Holder::This;
        }
        match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Holder::Nobody,
            _ => Holder::Another,
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.holder() == Holder::This {
            // A confined process may not remove a file in root's directory; the next process
            // replaces the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const MODE: u32 = 0o660;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn dropping_prepared_socket_leaves_live_socket_serving() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let (_living, file) = Prepared::bind(&path, MODE).unwrap().take_over().unwrap();
        drop(Prepared::bind(&path, MODE).unwrap());
        assert_eq!(file.holder(), Holder::This);
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(names(dir.path()), ["csi.sock"]);
    }

    #[test]
    fn replaced_socket_survives_former_owner_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let (_listener, first) = Prepared::bind(&path, MODE).unwrap().take_over().unwrap();
        let (_listener, second) = Prepared::bind(&path, MODE).unwrap().take_over().unwrap();
        assert_eq!(first.holder(), Holder::Another);
        drop(first);
        assert_eq!(second.holder(), Holder::This);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        drop(second);
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_removed_socket_has_no_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let (_listener, file) = Prepared::bind(&path, MODE).unwrap().take_over().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.holder(), Holder::Nobody);
    }

    #[test]
    fn sockets_that_a_killed_process_left_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        drop(UnixListener::bind(&path).unwrap());
        drop(UnixListener::bind(dir.path().join(".csi.sock")).unwrap());
        let (_listener, file) = Prepared::bind(&path, MODE).unwrap().take_over().unwrap();
        assert_eq!(file.holder(), Holder::This);
        assert_eq!(names(dir.path()), ["csi.sock"]);
    }

    #[test]
    fn non_socket_file_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        std::fs::write(&path, "data").unwrap();
        let refused = |outcome: io::Result<()>| {
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        };
        refused(Prepared::bind(&path, MODE).map(drop));
        refused(remove_socket(&path).map(drop));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
        assert!(!remove_socket(&dir.path().join("none")).unwrap());
    }
}
