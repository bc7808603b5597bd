//! The broker's requests to the process that makes and removes targets
//! ([`crate::roles::directories`]): one held parent, one name and one act for each.
use crate::lock;
use crate::outcome::{At, Result};
use crate::{channel, sys};
use ebs_csi_wire::Step;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Mutex;

/// An act, with the number that stands for it in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// mkdir, mode 0755.
    MakeDirectory = 1,
    /// mknod of an empty regular file, mode 0644.
    MakeFile = 2,
    /// rmdir, which removes only an empty directory.
    RemoveDirectory = 3,
    /// unlink, only of an empty file of root.
    RemoveFile = 4,
    /// mkdir, mode [`MADE_PARENT_MODE`]: a directory on the way to a target.
    MakeParent = 5,
}

/// Mode of a directory that was made on the way to a target. The mode distinguishes these
/// directories from others for every later process: in a directory that only root may write to, the
/// sticky bit has no other effect, and kubelet never sets it.
pub(crate) const MADE_PARENT_MODE: u32 = 0o1755;

impl Act {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        let all = [
            Self::MakeDirectory,
            Self::MakeFile,
            Self::RemoveDirectory,
            Self::RemoveFile,
            Self::MakeParent,
        ];
        all.into_iter().find(|act| *act as u8 == number)
    }
}

#[derive(Debug)]
pub(crate) struct Directories {
    socket: Mutex<OwnedFd>,
}

impl Directories {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket: Mutex::new(socket) }
    }

    fn send_request(&self, act: Act, parent: impl AsFd, name: &str) -> Result<(), Errno> {
        let mut request = vec![act as u8];
        request.extend_from_slice(name.as_bytes());
        let socket = lock(&self.socket);
        channel::send(&*socket, &request, &[parent.as_fd()]).map_err(|e| sys::errno_of(&e))?;
        let (reply, _) = channel::receive(&*socket).map_err(|e| sys::errno_of(&e))?;
        match <[u8; 4]>::try_from(reply.as_slice()).map(i32::from_le_bytes) {
            Ok(0) => Ok(()),
            Ok(errno) => Err(Errno::from_raw_os_error(errno)),
            Err(_) => Err(Errno::PIPE),
        }
    }

    /// Makes `name`. It is no error when `name` exists already; the caller checks what it is.
    pub(crate) fn make(&self, act: Act, parent: impl AsFd, name: &str) -> Result<()> {
        match self.send_request(act, parent, name) {
            Err(Errno::EXIST) => Ok(()),
            other => other.at(Step::MakeTarget),
        }
    }

    /// Removes `name`; returns false when there was none.
    pub(crate) fn remove(&self, act: Act, parent: impl AsFd, name: &str) -> Result<bool> {
        match self.send_request(act, parent, name) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) => {
                Err(ebs_csi_wire::Refusal::TargetOccupied.into())
            }
            Err(errno) => Err(errno).at(Step::RemoveTarget),
        }
    }
}
