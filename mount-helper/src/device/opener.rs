//! The process that opens disks. It holds `/sys` and `/dev` and the groups that the disks' nodes
//! belong to, and cannot mount. The broker says which disk it means and by what it knows it; this
//! process looks for itself that it is that one, before and after it opens it, and hands it over.
mod message;

pub(super) use message::Asked;

use super::{Access, Device, DeviceError, DiskRoots};
use crate::channel;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Disks that are opened at once. An open may wait for a disk that does not answer.
const LANES: usize = 4;

/// Word after a claim that this process has no longer.
const HANDED_OVER: &[u8] = b"handed-over";

/// The ends of the sockets: the broker's, and this process's.
pub type Ends = (Vec<OwnedFd>, Vec<OwnedFd>);

/// One socket for each disk that may be opened at once.
pub fn lanes() -> io::Result<Ends> {
    Ok((0..LANES)
        .map(|_| channel::pair())
        .collect::<io::Result<Vec<_>>>()?
        .into_iter()
        .unzip())
}

/// Start a thread for each lane; they end when the other ends are closed.
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

/// Answer until the other end is closed.
fn serve(lane: &OwnedFd, disks: &DiskRoots) {
    while let Ok((request, descriptors)) = channel::receive(lane) {
        if request.is_empty() {
            return;
        }
        // Nothing that it brings along is wanted.
        drop(descriptors);
        let opened = message::asked(&request)
            .ok_or(DeviceError::Os(Errno::INVAL))
            .and_then(|asked| Ok((open(disks, &asked)?, asked.exclusive)));
        let sent = match opened {
            Ok((device, exclusive)) => {
                let sent = channel::send(lane, &message::found(&device), &[device.as_fd()]);
                drop(device);
                // The claim is the broker's alone from here on: it ends with the broker's end of it.
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

/// A disk of the recognised kind, and for writing only one that nobody else has claimed: what is
/// mounted has.
fn open(disks: &DiskRoots, asked: &Asked) -> Result<Device, DeviceError> {
    if asked.access == Access::ReadWrite && !asked.exclusive {
        return Err(DeviceError::Os(Errno::PERM));
    }
    disks.open_here(asked)
}

/// The broker's ends.
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

    /// Have a disk opened.
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
            // Until then a mount could meet the opener's copy of a claim that has ended here.
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
