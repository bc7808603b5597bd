//! Datagrams with descriptors between the helper's own processes (SOCK_SEQPACKET socket pairs).
use crate::sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Message by which the supervisor tells the broker to finish and end.
pub const STOP: &[u8] = b"stop";

/// Length of the longest datagram, in bytes.
pub const MAX: usize = 4096;

/// Makes two connected sockets, both closed on exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one datagram with at most four descriptors.
pub fn send(socket: impl AsFd, data: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(socket.as_fd(), &[IoSlice::new(data)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Receives one datagram and its descriptors. Empty data means that the other end is closed.
pub fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut data = vec![0_u8; MAX];
    let (length, flags, descriptors) = loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        match recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(&mut data)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(message) => {
                let mut descriptors = Vec::new();
                for part in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(fds) = part {
                        descriptors.extend(fds);
                    }
                }
                break (message.bytes, message.flags, descriptors);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok((Vec::new(), Vec::new())),
            Err(e) => return Err(e.into()),
        }
    };
    if flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    data.truncate(length);
    Ok((data, descriptors))
}

/// Does the same as [`receive`]; fails when nothing arrives within `timeout`.
pub(crate) fn receive_within(
    socket: impl AsFd,
    timeout: Duration,
) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    if is_readable(&socket, timeout)? {
        receive(socket)
    } else {
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// Waits, at most `timeout`, until something has arrived; returns whether it has.
pub(crate) fn is_readable(socket: impl AsFd, timeout: Duration) -> io::Result<bool> {
    let limit = sys::timespec(timeout);
    loop {
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&limit)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_arrives_with_its_descriptors() {
        let (a, b) = pair().expect("pair");
        let (extra, _other) = pair().expect("pair");
        send(&a, b"hello", &[extra.as_fd()]).expect("send");
        let (data, descriptors) = receive(&b).expect("receive");
        assert_eq!(data, b"hello");
        assert_eq!(descriptors.len(), 1);
    }

    #[test]
    fn a_closed_end_reads_as_empty() {
        let (a, b) = pair().expect("pair");
        drop(a);
        assert!(receive(&b).expect("receive").0.is_empty());
    }

    #[test]
    fn runner_waits_for_job_no_longer_than_timeout() {
        let (broker, runner) = pair().expect("pair");
        let none = receive_within(&runner, Duration::from_millis(1)).expect_err("none came");
        assert_eq!(none.kind(), io::ErrorKind::TimedOut);
        let long = Duration::from_secs(30);
        send(&broker, b"job", &[]).expect("send");
        assert_eq!(receive_within(&runner, long).expect("a job").0, b"job");
        drop(broker);
        assert!(receive_within(&runner, long).expect("end").0.is_empty());
    }

    #[test]
    fn datagram_longer_than_max_is_an_error() {
        let (a, b) = pair().expect("pair");
        send(&a, &vec![1; MAX + 1], &[]).expect("send");
        assert!(receive(&b).is_err());
    }
}
