//! The broker's requests to the process that opens disks, and that process's answers: words, one
//! datagram for each message. A request names a disk and the proof by which the broker knows the
//! disk, or comes with a disk whose areas are to be searched.
use super::{Access, Device, DeviceError, Proof};
use crate::{channel, sys};
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_wire::Node;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::num::NonZeroU32;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Number of disks that can be opened at once. An open may wait for a disk that does not respond.
const LANES: usize = 4;

/// Length of the longest name that is accepted for a disk.
const LONGEST_NAME: usize = 32;

/// How long the broker waits for the result of a search before it looks after something else.
const PAUSE: Duration = Duration::from_millis(1);

/// Message that says that the opener has closed its copy of a claim.
pub(crate) const HANDED_OVER: &[u8] = b"handed-over";

/// The ends of the sockets: the broker's, and the opener's.
pub type LaneEnds = (Vec<OwnedFd>, Vec<OwnedFd>);

/// Makes one socket pair for each disk that can be opened at once.
pub fn lanes() -> io::Result<LaneEnds> {
    Ok((0..LANES).map(|_| channel::pair()).collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
}

#[derive(Debug)]
pub(super) struct Opener {
    free: Mutex<Vec<OwnedFd>>,
    returned: Condvar,
}

impl Opener {
    pub(super) fn new(lanes: Vec<OwnedFd>) -> Self {
        Self { free: Mutex::new(lanes), returned: Condvar::new() }
    }

    pub(super) fn send_request(&self, request: &OpenRequest) -> Result<Device, DeviceError> {
        let lane = self.take_lane();
        let answer = Self::send_request_on(&lane, request);
        self.return_lane(lane);
        answer
    }

    fn send_request_on(lane: &OwnedFd, request: &OpenRequest) -> Result<Device, DeviceError> {
        channel::send(lane, &encode_request(request), &[]).map_err(super::errno)?;
        let (answer, mut descriptors) = channel::receive(lane).map_err(super::errno)?;
        let device = parse_answer(&answer, descriptors.pop(), request)?;
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

    /// Has the areas of `disk` searched as [`crate::disk::area_search`] does. Calls `meanwhile`
    /// while it waits.
    pub(super) fn search(
        &self,
        disk: BorrowedFd<'_>,
        request: &SearchRequest,
        meanwhile: impl FnMut(),
    ) -> Result<Option<u64>, Errno> {
        let lane = self.take_lane();
        let answer = Self::search_on(&lane, disk, request, meanwhile);
        self.return_lane(lane);
        answer
    }

    fn search_on(
        lane: &OwnedFd,
        disk: BorrowedFd<'_>,
        request: &SearchRequest,
        mut meanwhile: impl FnMut(),
    ) -> Result<Option<u64>, Errno> {
        let errno = |error: io::Error| sys::errno_of(&error);
        channel::send(lane, &encode_search(request), &[disk]).map_err(errno)?;
        while !channel::is_readable(lane, PAUSE).map_err(errno)? {
            meanwhile();
        }
        let (answer, _) = channel::receive(lane).map_err(errno)?;
        parse_search_result(&answer)
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenRequest {
    pub(super) disk: String,
    pub(super) partition: Option<NonZeroU32>,
    /// The property that the disk must have.
    pub(super) proof: Proof,
    pub(crate) access: Access,
    /// Whether the disk must be claimed; when that fails, it is not opened at all.
    pub(crate) exclusive: bool,
    /// Whether reads bypass the page cache.
    pub(super) direct: bool,
}

/// The areas of a disk of `size` bytes that lie within `within`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchRequest {
    pub(crate) size: u64,
    pub(crate) within: Range<u64>,
}

fn encode_search(request: &SearchRequest) -> Vec<u8> {
    let SearchRequest { size, within: Range { start, end } } = request;
    format!("search\n{size}\n{start}\n{end}").into_bytes()
}

/// Parses a search; returns None for any other message.
pub(crate) fn parse_search(message: &[u8]) -> Option<SearchRequest> {
    let text = std::str::from_utf8(message).ok()?;
    let lines: Vec<&str> = text.split('\n').collect();
    let &["search", size, start, end] = lines.as_slice() else {
        return None;
    };
    let (size, within) = (parse(size)?, parse(start)?..parse(end)?);
    Some(SearchRequest { size, within }).filter(|search| search.within.end <= search.size)
}

pub(crate) fn encode_search_result(found: &Result<Option<u64>, Errno>) -> Vec<u8> {
    match found {
        Ok(None) => "zero".to_owned(),
        Ok(Some(at)) => format!("set {at}"),
        Err(errno) => format!("errno {}", errno.raw_os_error()),
    }
    .into_bytes()
}

/// Parses the result of a search. Anything but a result proves nothing, and is an error.
fn parse_search_result(answer: &[u8]) -> Result<Option<u64>, Errno> {
    let text = std::str::from_utf8(answer).map_err(|_| Errno::PIPE)?;
    match text.split(' ').collect::<Vec<_>>().as_slice() {
        ["zero"] => Ok(None),
        ["set", at] => parse(at).map(Some).ok_or(Errno::PIPE),
        ["errno", errno] => Err(parse(errno).map_or(Errno::PIPE, Errno::from_raw_os_error)),
        _ => Err(Errno::PIPE),
    }
}

fn encode_request(request: &OpenRequest) -> Vec<u8> {
    let (proof, serial) = match &request.proof {
        Proof::Serial(serial) => ("serial", serial.as_str()),
        Proof::Name => ("name", ""),
    };
    let access = match request.access {
        Access::ReadWrite => "write",
        Access::ReadOnly => "read",
    };
    let partition = request.partition.map_or(0, NonZeroU32::get);
    let (exclusive, direct) = (u8::from(request.exclusive), u8::from(request.direct));
    let disk = &request.disk;
    format!("{proof}\n{serial}\n{disk}\n{partition}\n{access}\n{exclusive}\n{direct}").into_bytes()
}

/// Parses a request; returns None for a message that this driver's broker never sends.
pub(crate) fn parse_request(message: &[u8]) -> Option<OpenRequest> {
    let text = std::str::from_utf8(message).ok()?;
    let lines: Vec<&str> = text.split('\n').collect();
    let &[proof, serial, disk, partition, access, exclusive, direct] = lines.as_slice() else {
        return None;
    };
    // The name becomes a part of paths.
    let plain = !disk.is_empty()
        && disk.len() <= LONGEST_NAME
        && disk.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let flag = |text| match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    Some(OpenRequest {
        disk: plain.then(|| disk.to_owned())?,
        partition: NonZeroU32::new(partition.parse().ok()?),
        proof: match proof {
            "serial" if !serial.is_empty() => Proof::Serial(serial.to_owned()),
            "name" if serial.is_empty() => Proof::Name,
            _ => return None,
        },
        access: match access {
            "write" => Access::ReadWrite,
            "read" => Access::ReadOnly,
            _ => return None,
        },
        exclusive: flag(exclusive)?,
        direct: flag(direct)?,
    })
}

/// Encodes the answer for an opened disk, whose descriptor is sent along.
pub(crate) fn encode_opened(device: &Device) -> Vec<u8> {
    let Device { name, number, whole, sequence, bytes, whole_bytes, start, .. } = device;
    let start = start.map_or_else(|| "-".to_owned(), |start| start.to_string());
    let (number, whole) = (number.0, whole.0);
    format!("opened {name} {number} {whole} {sequence} {bytes} {whole_bytes} {start}").into_bytes()
}

pub(crate) fn encode_error(error: &DeviceError) -> Vec<u8> {
    match error {
        DeviceError::Absent => "absent".to_owned(),
        DeviceError::Ambiguous => "ambiguous".to_owned(),
        DeviceError::Mismatch => "mismatch".to_owned(),
        DeviceError::WithoutSerial => "without-serial".to_owned(),
        DeviceError::Closed(Node { uid, gid, mode }) => format!("closed {uid} {gid} {mode}"),
        DeviceError::Os(errno) => format!("errno {}", errno.raw_os_error()),
    }
    .into_bytes()
}

/// Parses the opener's answer. An opener that has ended gives an empty answer, which is an error.
fn parse_answer(
    answer: &[u8],
    descriptor: Option<OwnedFd>,
    request: &OpenRequest,
) -> Result<Device, DeviceError> {
    let broken = || DeviceError::Os(Errno::PIPE);
    let text = std::str::from_utf8(answer).map_err(|_| broken())?;
    let words: Vec<&str> = text.split(' ').collect();
    Err(match words.as_slice() {
        &["opened", name, number, whole, sequence, bytes, whole_bytes, start] => {
            return device(
                descriptor,
                request,
                name,
                [number, whole, sequence, bytes, whole_bytes],
                start,
            )
            .ok_or_else(broken);
        }
        ["absent"] => DeviceError::Absent,
        ["ambiguous"] => DeviceError::Ambiguous,
        ["mismatch"] => DeviceError::Mismatch,
        ["without-serial"] => DeviceError::WithoutSerial,
        &["closed", uid, gid, mode] => match (parse(uid), parse(gid), parse(mode)) {
            (Some(uid), Some(gid), Some(mode)) => DeviceError::Closed(Node { uid, gid, mode }),
            _ => broken(),
        },
        &["errno", errno] => {
            parse(errno).map_or_else(broken, |errno| Errno::from_raw_os_error(errno).into())
        }
        _ => broken(),
    })
}

fn device(
    descriptor: Option<OwnedFd>,
    request: &OpenRequest,
    name: &str,
    numbers: [&str; 5],
    start: &str,
) -> Option<Device> {
    let [number, whole, sequence, bytes, whole_bytes] = numbers;
    Some(Device {
        fd: descriptor?,
        name: name.to_owned(),
        disk: request.disk.clone(),
        partition: request.partition,
        number: DeviceNumber(parse(number)?),
        sequence: parse(sequence)?,
        bytes: parse(bytes)?,
        whole_bytes: parse(whole_bytes)?,
        start: match start {
            "-" => None,
            start => Some(parse(start)?),
        },
        whole: DeviceNumber(parse(whole)?),
        proof: request.proof.clone(),
    })
}

fn parse<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> OpenRequest {
        OpenRequest {
            disk: "nvme1n1".to_owned(),
            partition: NonZeroU32::new(2),
            proof: Proof::Serial("vol0123456789abcdef0".to_owned()),
            access: Access::ReadWrite,
            exclusive: true,
            direct: false,
        }
    }

    #[test]
    fn open_request_round_trips() {
        let by_name = OpenRequest {
            disk: "xvdba".to_owned(),
            partition: None,
            proof: Proof::Name,
            access: Access::ReadOnly,
            exclusive: false,
            direct: true,
        };
        for one in [example(), by_name] {
            assert_eq!(parse_request(&encode_request(&one)), Some(one));
        }
    }

    #[test]
    fn search_and_its_result_round_trip() {
        let search = SearchRequest { size: 1 << 40, within: 4096..8192 };
        assert_eq!(parse_search(&encode_search(&search)), Some(search));
        for bad in ["search\n1\n0", "search\n1\n0\n2", "search\n-1\n0\n0", "look\n1\n0\n1"] {
            assert_eq!(parse_search(bad.as_bytes()), None, "{bad}");
        }
        for result in [Ok(None), Ok(Some(7)), Err(Errno::IO)] {
            assert_eq!(parse_search_result(&encode_search_result(&result)), result);
        }
        for broken in [&b""[..], b"set", b"set x", b"zero 1", b"\xff"] {
            assert_eq!(parse_search_result(broken), Err(Errno::PIPE));
        }
    }

    #[test]
    fn malformed_open_requests_do_not_decode() {
        let good = String::from_utf8(encode_request(&example())).expect("text");
        for bad in [
            String::new(),
            format!("{good}\n"),
            good.replace("nvme1n1", "../mem"),
            good.replace("nvme1n1", "nvme1n1/x"),
            good.replace("nvme1n1", ""),
            good.replace("nvme1n1", &"n".repeat(LONGEST_NAME + 1)),
            good.replace("\n2\n", "\n-2\n"),
            good.replace("write", "append"),
            good.replace("serial", "name"),
            good.replace("vol0123456789abcdef0", ""),
            good.replace("\n1\n", "\nyes\n"),
        ] {
            assert_eq!(parse_request(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn answer_without_descriptor_is_device_error() {
        let node = Node { uid: 0, gid: 6, mode: 0o600 };
        for error in [
            DeviceError::Absent,
            DeviceError::Ambiguous,
            DeviceError::Mismatch,
            DeviceError::WithoutSerial,
            DeviceError::Closed(node),
            DeviceError::Os(Errno::BUSY),
        ] {
            let answered = parse_answer(&encode_error(&error), None, &example());
            assert_eq!(answered.expect_err("an error"), error);
        }
        for broken in [&b""[..], b"opened nvme1n1 1 1 1 1 1 -", b"opened", b"\xff"] {
            let answered = parse_answer(broken, None, &example());
            assert_eq!(answered.expect_err("an error"), DeviceError::Os(Errno::PIPE));
        }
    }
}
