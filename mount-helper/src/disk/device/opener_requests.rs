//! The broker's end of the sockets to the opener.
use super::opener_messages::{Answer, OpenRequest, ReadRequest, Request};
use super::{Device, DeviceError, Proof, words};
use crate::{channel, lock};
use ebs_csi_policy::facts::Content;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Number of disks that can be opened at once. An open may wait for a disk that does not answer.
const OPENS: usize = 4;

/// Number of disks that can be read at once. While so many disks do not answer, a further one is
/// opened and not read.
const READS: usize = 8;

/// How long the broker waits for an answer before it looks after something else.
const PAUSE: Duration = Duration::from_millis(1);

/// The ends of the sockets: the broker's, and the opener's.
pub type LaneEnds = (Vec<OwnedFd>, Vec<OwnedFd>);

/// Makes one socket pair for each disk that can be opened or read at once.
pub fn lanes() -> io::Result<LaneEnds> {
    let pairs = (0..OPENS + READS).map(|_| channel::pair());
    Ok(pairs.collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
}

/// Lanes that carry one request each.
#[derive(Debug)]
struct Lanes {
    free: Mutex<Vec<OwnedFd>>,
    returned: Condvar,
}

impl Lanes {
    fn new(lanes: Vec<OwnedFd>) -> Self {
        Self { free: Mutex::new(lanes), returned: Condvar::new() }
    }

    /// Waits for a lane, and gives it to `exchange`.
    fn with<T>(&self, exchange: impl FnOnce(&OwnedFd) -> T) -> T {
        let mut free = lock(&self.free);
        let lane = loop {
            if let Some(lane) = free.pop() {
                break lane;
            }
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        };
        drop(free);
        let result = exchange(&lane);
        lock(&self.free).push(lane);
        self.returned.notify_one();
        result
    }
}

#[derive(Debug)]
pub(super) struct Opener {
    opens: Lanes,
    reads: Lanes,
}

impl Opener {
    pub(super) fn new(mut lanes: Vec<OwnedFd>) -> Self {
        let reads = lanes.split_off(OPENS.min(lanes.len()));
        Self { opens: Lanes::new(lanes), reads: Lanes::new(reads) }
    }

    /// Has a disk opened that the broker has found.
    pub(super) fn open(&self, request: &OpenRequest) -> Result<Device, DeviceError> {
        let device = self.open_by(&Request::Open(request.clone()), request.exclusive)?;
        let opened = &device.opened;
        let same = opened.disk == request.disk
            && opened.partition == request.partition
            && opened.proof == request.proof;
        if same { Ok(device) } else { Err(DeviceError::Mismatch) }
    }

    /// Has a disk without a serial found and opened, by a request other than [`Request::Open`].
    pub(super) fn open_named(&self, request: &Request) -> Result<Device, DeviceError> {
        let device = self.open_by(request, false)?;
        if device.opened.proof == Proof::Name { Ok(device) } else { Err(DeviceError::Mismatch) }
    }

    fn open_by(&self, request: &Request, exclusive: bool) -> Result<Device, DeviceError> {
        self.opens.with(|lane| {
            send(lane, request, &[])?;
            let device = match receive(lane)? {
                (Answer::Opened(opened), Some(fd)) => Device { fd, opened },
                (answer, _) => return Err(error_in(answer)),
            };
            // Without this wait, the broker could end its claim and mount the disk while the opener
            // still holds a copy of the claim.
            if exclusive && !matches!(receive(lane)?, (Answer::HandedOver, _)) {
                return Err(Errno::PIPE.into());
            }
            Ok(device)
        })
    }

    /// Asks about disks without a serial.
    pub(super) fn ask(&self, request: &Request) -> Result<Answer, DeviceError> {
        self.opens.with(|lane| {
            send(lane, request, &[])?;
            match receive(lane)?.0 {
                Answer::Failed(error) => Err(error),
                answer => Ok(answer),
            }
        })
    }

    /// Has the content of a disk recognised. Calls `seems_blank` when the first bytes of the disk
    /// show nothing, and `meanwhile` while it waits afterwards.
    pub(super) fn recognise(
        &self,
        disk: BorrowedFd<'_>,
        now: u64,
        seems_blank: impl FnOnce(),
        mut meanwhile: impl FnMut(),
    ) -> Result<Content, DeviceError> {
        self.reads.with(|lane| {
            send(lane, &Request::Read(ReadRequest::Recognise { now }), &[disk])?;
            let mut answer = receive(lane)?.0;
            if let Answer::SeemsBlank = answer {
                seems_blank();
                while !channel::is_readable(lane, PAUSE).map_err(super::errno)? {
                    meanwhile();
                }
                answer = receive(lane)?.0;
            }
            match answer {
                Answer::Content(content) => Ok(content),
                answer => Err(error_in(answer)),
            }
        })
    }

    /// Sends a request to read, and returns the answer with its descriptor.
    pub(super) fn read(
        &self,
        request: ReadRequest,
        disks: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Option<OwnedFd>), DeviceError> {
        self.reads.with(|lane| {
            send(lane, &Request::Read(request), disks)?;
            match receive(lane)? {
                (Answer::Failed(error), _) => Err(error),
                answer => Ok(answer),
            }
        })
    }
}

fn send(lane: &OwnedFd, request: &Request, disks: &[BorrowedFd<'_>]) -> Result<(), DeviceError> {
    channel::send(lane, &words::encode(request), disks).map_err(super::errno)
}

/// Receives an answer. An opener that has ended gives none, which is an error.
fn receive(lane: &OwnedFd) -> Result<(Answer, Option<OwnedFd>), DeviceError> {
    let (message, mut descriptors) = channel::receive(lane).map_err(super::errno)?;
    let answer = words::parse(&message).ok_or(DeviceError::Os(Errno::PIPE))?;
    Ok((answer, descriptors.pop()))
}

/// Returns the error of an answer. Anything but what was asked for proves nothing.
pub(super) fn error_in(answer: Answer) -> DeviceError {
    match answer {
        Answer::Failed(error) => error,
        _ => Errno::PIPE.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Access;
    use super::super::opener_messages::encode_answer;
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn opener_that_ended_gives_errors() {
        let (lane, ended) = channel::pair().expect("a pair");
        let opener = Opener { opens: Lanes::new(vec![lane]), reads: Lanes::new(Vec::new()) };
        drop(ended);
        let request = OpenRequest {
            disk: "nvme1n1".to_owned(),
            partition: None,
            proof: Proof::Name,
            access: Access::ReadOnly,
            exclusive: true,
            direct: false,
        };
        assert!(opener.open(&request).is_err());
        let (lane, answering) = channel::pair().expect("a pair");
        let opener = Opener { opens: Lanes::new(Vec::new()), reads: Lanes::new(vec![lane]) };
        // Another answer than the one that was asked for.
        channel::send(&answering, &encode_answer(&Answer::HandedOver), &[]).expect("sent");
        let content = opener.recognise(answering.as_fd(), 0, || (), || ());
        assert_eq!(content.expect_err("no content"), DeviceError::Os(Errno::PIPE));
    }
}
