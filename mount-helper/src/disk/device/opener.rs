//! The process that opens disks. It holds `/sys` and `/dev` and has the groups of the disks' nodes,
//! and cannot mount. The broker names a disk and the proof by which it knows the disk. The opener
//! checks this proof itself, before and after the open, and passes the descriptor to the broker.
mod message;

pub(super) use message::Asked;

use super::{Access, Device, DeviceError, DiskRoots};
use crate::channel;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Number of disks that can be opened at once. An open may wait for a disk that does not respond.
const LANES: usize = 4;

/// Message that says that this process has closed its copy of a claim.
const HANDED_OVER: &[u8] = b"handed-over";

/// The ends of the sockets: the broker's, and the opener's.
pub type Ends = (Vec<OwnedFd>, Vec<OwnedFd>);

/// Makes one socket pair for each disk that can be opened at once.
pub fn lanes() -> io::Result<Ends> {
    Ok((0..LANES)
        .map(|_| channel::pair())
        .collect::<io::Result<Vec<_>>>()?
        .into_iter()
        .unzip())
}

/// Starts a thread for each lane; a thread ends when the other end of its lane is closed.
pub fn start(
    lanes: Vec<OwnedFd>,
    disks: DiskRoots,
) -> io::Result<Vec<std::thread::JoinHandle<()>>> {
    let disks = Arc::new(disks);
    lanes
        .into_iter()
        .map(|lane| {
            let disks = Arc::clone(&disks);
            std::thread::Builder::new()
                .stack_size(128 << 10)
                .spawn(move || serve(&lane, &disks))
        })
        .collect()
}

/// Answers requests until the other end is closed.
fn serve(lane: &OwnedFd, disks: &DiskRoots) {
    while let Ok((request, descriptors)) = channel::receive(lane) {
        if request.is_empty() {
            return;
        }
        // Descriptors that come with a request are not used.
        drop(descriptors);
        let opened = message::asked(&request)
            .ok_or(DeviceError::Os(Errno::INVAL))
            .and_then(|asked| Ok((open(disks, &asked)?, asked.exclusive)));
        let sent = match opened {
            Ok((device, exclusive)) => {
                let sent = channel::send(lane, &message::found(&device), &[device.as_fd()]);
                drop(device);
                // From here on only the broker holds the claim, and the claim ends when the broker
                // closes it.
                match sent {
                    Ok(()) if exclusive => channel::send(lane, HANDED_OVER, &[]),
                    other => other,
                }
            }
            Err(error) => channel::send(lane, &message::refused(&error), &[]),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Opens a disk of the recognised kind. For writing, it opens only with a claim, so that a disk
/// that is claimed by somebody else, such as a mounted one, cannot be written to.
fn open(disks: &DiskRoots, asked: &Asked) -> Result<Device, DeviceError> {
    if asked.access == Access::ReadWrite && !asked.exclusive {
        return Err(DeviceError::Os(Errno::PERM));
    }
    disks.open_here(asked)
}

/// The broker's ends of the lanes.
#[derive(Debug)]
pub(super) struct Opener {
    free: Mutex<Vec<OwnedFd>>,
    given_back: Condvar,
}

impl Opener {
    pub(super) fn new(lanes: Vec<OwnedFd>) -> Self {
        Self {
            free: Mutex::new(lanes),
            given_back: Condvar::new(),
        }
    }

    /// Sends a request to open a disk and returns the disk.
    pub(super) fn ask(&self, asked: &Asked) -> Result<Device, DeviceError> {
        let lane = self.take();
        let answer = Self::ask_on(&lane, asked);
        self.give_back(lane);
        answer
    }

    fn ask_on(lane: &OwnedFd, asked: &Asked) -> Result<Device, DeviceError> {
        channel::send(lane, &message::ask(asked), &[]).map_err(super::errno)?;
        let (answer, mut descriptors) = channel::receive(lane).map_err(super::errno)?;
        let device = message::answer(&answer, descriptors.pop(), asked)?;
        if asked.exclusive {
            // Without this wait, the broker could end its claim and mount the disk while the opener
            // still holds a copy of the claim.
            let (word, _) = channel::receive(lane).map_err(super::errno)?;
            if word != HANDED_OVER {
                return Err(Errno::PIPE.into());
            }
        }
        Ok(device)
    }

    fn take(&self) -> OwnedFd {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(lane) = free.pop() {
                return lane;
            }
            free = self
                .given_back
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, lane: OwnedFd) {
        self.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(lane);
        self.given_back.notify_one();
    }
}
