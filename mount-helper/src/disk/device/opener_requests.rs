//! The broker's requests to the process that opens disks ([`crate::roles::opener`]). A request
//! names a disk and the proof by which the broker knows the disk.
pub(crate) mod message;

pub(crate) use message::OpenRequest;

use super::{Device, DeviceError};
use crate::channel;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};

/// Number of disks that can be opened at once. An open may wait for a disk that does not respond.
const LANES: usize = 4;

/// Message that says that the opener has closed its copy of a claim.
pub(crate) const HANDED_OVER: &[u8] = b"handed-over";

/// The ends of the sockets: the broker's, and the opener's.
pub type Ends = (Vec<OwnedFd>, Vec<OwnedFd>);

/// Makes one socket pair for each disk that can be opened at once.
pub fn lanes() -> io::Result<Ends> {
    Ok((0..LANES).map(|_| channel::pair()).collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
}

/// The broker's ends of the lanes.
#[derive(Debug)]
pub(super) struct Opener {
    free: Mutex<Vec<OwnedFd>>,
    returned: Condvar,
}

impl Opener {
    pub(super) fn new(lanes: Vec<OwnedFd>) -> Self {
        Self { free: Mutex::new(lanes), returned: Condvar::new() }
    }

    /// Sends a request to open a disk and returns the disk.
    pub(super) fn send_request(&self, request: &OpenRequest) -> Result<Device, DeviceError> {
        let lane = self.take_lane();
        let answer = Self::send_request_on(&lane, request);
        self.return_lane(lane);
        answer
    }

    fn send_request_on(lane: &OwnedFd, request: &OpenRequest) -> Result<Device, DeviceError> {
        channel::send(lane, &message::encode_request(request), &[]).map_err(super::errno)?;
        let (answer, mut descriptors) = channel::receive(lane).map_err(super::errno)?;
        let device = message::parse_answer(&answer, descriptors.pop(), request)?;
        if request.exclusive {
            // Without this wait, the broker could end its claim and mount the disk while the opener
            // still holds a copy of the claim.
            let (word, _) = channel::receive(lane).map_err(super::errno)?;
            if word != HANDED_OVER {
                return Err(Errno::PIPE.into());
            }
        }
        Ok(device)
    }

    fn take_lane(&self) -> OwnedFd {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(lane) = free.pop() {
                return lane;
            }
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn return_lane(&self, lane: OwnedFd) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
        self.returned.notify_one();
    }
}
