//! The broker's requests to the opener, and the opener's answers: one datagram for each message
//! ([`words`]). A request to open names a disk and the proof by which the broker knows the disk;
//! the others come with the descriptor of the disk that they are about.
use super::words::{self, words};
use super::{Access, Device, DeviceError, Proof};
use crate::channel;
use crate::disk::content::FirstFacts;
use crate::disk::content::reference::{ComparisonResult, Witness};
use ebs_csi_policy::facts::{Content, DeviceNumber};
use ebs_csi_wire::FsType;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::num::NonZeroU32;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Number of disks that can be opened at once. An open may wait for a disk that does not answer.
const OPENS: usize = 4;

/// Number of disks that can be read at once. While so many disks do not answer, a further one is
/// opened and not read.
const READS: usize = 8;

/// Length of the longest name that is accepted for a disk.
const LONGEST_NAME: usize = 32;

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
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = loop {
            if let Some(lane) = free.pop() {
                break lane;
            }
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        };
        drop(free);
        let result = exchange(&lane);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
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

    pub(super) fn open(&self, request: &OpenRequest) -> Result<Device, DeviceError> {
        self.opens.with(|lane| {
            send(lane, &Request::Open(request.clone()), &[])?;
            let device = match receive(lane)? {
                (Answer::Opened(opened), Some(fd)) => opened.into_device(fd, request),
                (answer, _) => return Err(error_in(answer)),
            };
            // Without this wait, the broker could end its claim and mount the disk while the opener
            // still holds a copy of the claim.
            if request.exclusive && !matches!(receive(lane)?, (Answer::HandedOver, _)) {
                return Err(Errno::PIPE.into());
            }
            Ok(device)
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
            send(lane, &Request::Recognise { now }, &[disk])?;
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
        request: &Request,
        disks: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Option<OwnedFd>), DeviceError> {
        self.reads.with(|lane| {
            send(lane, request, disks)?;
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

/// What the broker asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// To open a disk.
    Open(OpenRequest),
    /// What is on the disk, at this time in seconds since 1970.
    Recognise { now: u64 },
    /// What the first bytes of the disk show.
    First,
    /// An empty file in memory, as large as the disk, in which a format is made again.
    Memory { bytes: u64 },
    /// The times that the disk has where the format in memory has its own.
    Times(Times),
    /// Whether the format in memory explains everything on the disk.
    Compare(Comparison),
    /// Whether a piece of the disk is as it was.
    IsUnchanged(Witness),
}

/// What the opener answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The disk comes along.
    Opened(OpenedDisk),
    /// The opener has closed its copy of a claim.
    HandedOver,
    /// Nothing is recognised in the first bytes; the content follows.
    SeemsBlank,
    Content(Content),
    First(FirstFacts),
    /// The file comes along.
    Memory,
    Times(Vec<u64>),
    Compared(ComparisonResult),
    IsUnchanged(bool),
    Failed(DeviceError),
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

/// A format in memory that was made at a time, in seconds since 1970, for a disk of so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) bytes: u64,
    pub(crate) time: u64,
}

/// A format of a type in memory, for a disk of so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) fs: FsType,
    pub(crate) bytes: u64,
}

/// The facts about an opened disk, as in [`Device`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OpenedDisk {
    name: String,
    number: DeviceNumber,
    whole: DeviceNumber,
    sequence: u64,
    bytes: u64,
    whole_bytes: u64,
    start: Option<u64>,
}

words! {
    struct OpenRequest { disk, partition, proof, access, exclusive, direct }
    struct Times { bytes, time }
    struct Comparison { fs, bytes }
    struct OpenedDisk { name, number, whole, sequence, bytes, whole_bytes, start }
}

words! {
    enum Proof {
        "serial" => Serial(serial),
        "name" => Name,
    }
    enum Access {
        "write" => ReadWrite,
        "read" => ReadOnly,
    }
    enum Request {
        "open" => Open(request),
        "recognise" => Recognise { now },
        "first" => First,
        "memory" => Memory { bytes },
        "times" => Times(times),
        "compare" => Compare(comparison),
        "is-unchanged" => IsUnchanged(witness),
    }
    enum Answer {
        "opened" => Opened(disk),
        "handed-over" => HandedOver,
        "seems-blank" => SeemsBlank,
        "content" => Content(content),
        "first" => First(facts),
        "memory" => Memory,
        "times" => Times(times),
        "compared" => Compared(result),
        "is-unchanged" => IsUnchanged(unchanged),
        "failed" => Failed(error),
    }
    enum DeviceError {
        "absent" => Absent,
        "ambiguous" => Ambiguous,
        "mismatch" => Mismatch,
        "without-serial" => WithoutSerial,
        "closed" => Closed(node),
        "errno" => Os(errno),
    }
}

/// Parses a request; returns None for a message that this driver's broker never sends.
pub(crate) fn parse_request(message: &[u8]) -> Option<Request> {
    let request = words::parse(message)?;
    let plausible = match &request {
        // The name becomes a part of paths.
        Request::Open(OpenRequest { disk, proof, .. }) => {
            !disk.is_empty()
                && disk.len() <= LONGEST_NAME
                && disk.bytes().all(|byte| byte.is_ascii_alphanumeric())
                && *proof != Proof::Serial(String::new())
        }
        _ => true,
    };
    plausible.then_some(request)
}

pub(crate) fn encode_answer(answer: &Answer) -> Vec<u8> {
    words::encode(answer)
}

impl OpenedDisk {
    pub(crate) fn of(device: &Device) -> Self {
        let Device { number, whole, sequence, bytes, whole_bytes, start, .. } = *device;
        let name = device.name.clone();
        Self { name, number, whole, sequence, bytes, whole_bytes, start }
    }

    fn into_device(self, fd: OwnedFd, request: &OpenRequest) -> Device {
        let Self { name, number, whole, sequence, bytes, whole_bytes, start } = self;
        let (disk, partition) = (request.disk.clone(), request.partition);
        let proof = request.proof.clone();
        Device {
            fd,
            name,
            disk,
            partition,
            number,
            sequence,
            bytes,
            whole_bytes,
            start,
            whole,
            proof,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::facts::{ExtFacts, ExtLevel, XfsFacts};
    use ebs_csi_wire::{Features, Node, Signature};
    use rustix::fd::AsFd;

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

    fn requests() -> Vec<Request> {
        let by_name = OpenRequest {
            disk: "xvdba".to_owned(),
            partition: None,
            proof: Proof::Name,
            access: Access::ReadOnly,
            exclusive: false,
            direct: true,
        };
        vec![
            Request::Open(example()),
            Request::Open(by_name),
            Request::Recognise { now: 1 },
            Request::First,
            Request::Memory { bytes: 1 << 40 },
            Request::Times(Times { bytes: 1, time: 2 }),
            Request::Compare(Comparison { fs: FsType::Xfs, bytes: 3 }),
            Request::IsUnchanged(Witness { at: 4, length: 5, checksum: 6 }),
        ]
    }

    fn answers() -> Vec<Answer> {
        let node = Node { uid: 0, gid: 6, mode: 0o600 };
        let errors = [
            DeviceError::Absent,
            DeviceError::Ambiguous,
            DeviceError::Mismatch,
            DeviceError::WithoutSerial,
            DeviceError::Closed(node),
            DeviceError::Os(Errno::BUSY),
        ];
        let contents = [
            Content::Blank,
            Content::Ext(ext()),
            Content::Xfs(xfs()),
            Content::PartitionTable(Signature::Gpt),
            Content::Foreign(Signature::Luks),
            Content::Damaged(Signature::Ext3),
            Content::Unknown { at: 7 },
        ];
        let witness = Witness { at: 4, length: 5, checksum: 6 };
        let results = [
            ComparisonResult::Explained,
            ComparisonResult::Unexplained(None),
            ComparisonResult::Unexplained(Some(witness)),
            ComparisonResult::Incomparable,
        ];
        let first = FirstFacts {
            identifier: Some([7; 16]),
            features: Some(Features {
                fs: FsType::Ext4,
                compatible: 1,
                incompatible: 2,
                read_only_compatible: 3,
                block_bytes: 4096,
            }),
            ext: Some(ext()),
        };
        let nothing = FirstFacts { identifier: None, features: None, ext: None };
        let mut answers = vec![
            Answer::Opened(OpenedDisk {
                name: "nvme1n1p2".to_owned(),
                number: DeviceNumber(1),
                whole: DeviceNumber(2),
                sequence: 3,
                bytes: 4,
                whole_bytes: 5,
                start: Some(6),
            }),
            Answer::HandedOver,
            Answer::SeemsBlank,
            Answer::First(first),
            Answer::First(nothing),
            Answer::Memory,
            Answer::Times(vec![]),
            Answer::Times(vec![1, u64::MAX]),
            Answer::IsUnchanged(true),
            Answer::IsUnchanged(false),
        ];
        answers.extend(errors.map(Answer::Failed));
        answers.extend(contents.map(Answer::Content));
        answers.extend(results.map(Answer::Compared));
        answers
    }

    /// An ext superblock whose mount options, which are the disk's own text, look like words.
    fn ext() -> ExtFacts {
        ExtFacts {
            level: ExtLevel::Ext4,
            clean: true,
            needs_recovery: false,
            fast_commit: true,
            bytes: 1,
            block_bytes: 2,
            group_blocks: 3,
            uuid: [4; 16],
            continues: false,
            outside_journal: true,
            default_options: 5,
            default_words: " blank\n\u{fffd}".to_owned(),
            last_check: 6,
            mounted: true,
        }
    }

    fn xfs() -> XfsFacts {
        XfsFacts {
            sound: true,
            in_progress: false,
            bytes: 1,
            block_bytes: 2,
            groups: 3,
            uuid: [4; 16],
        }
    }

    #[test]
    fn requests_and_answers_round_trip() {
        for request in requests() {
            assert_eq!(parse_request(&words::encode(&request)), Some(request));
        }
        for answer in answers() {
            assert_eq!(words::parse(&encode_answer(&answer)), Some(answer));
        }
    }

    /// The other side may be compromised: whatever it sends is a message or nothing.
    #[test]
    fn cut_or_changed_messages_never_panic() {
        let requests = requests().into_iter().map(|request| words::encode(&request));
        let answers = answers().into_iter().map(|answer| encode_answer(&answer));
        for whole in requests.chain(answers) {
            for length in 0..whole.len() {
                let cut = &whole[..length];
                let parsed = parse_request(cut).map(|request| words::encode(&request));
                assert_ne!(parsed.as_ref(), Some(&whole));
                let mut changed = whole.clone();
                changed[length] ^= 0x55;
                let _ = (parse_request(&changed), words::parse::<Answer>(&changed));
            }
        }
    }

    #[test]
    fn malformed_open_requests_do_not_decode() {
        let good = |change: fn(&mut OpenRequest)| {
            let mut request = example();
            change(&mut request);
            parse_request(&words::encode(&Request::Open(request)))
        };
        assert!(good(|_| ()).is_some());
        let bad: [fn(&mut OpenRequest); 5] = [
            |request| request.disk = "../mem".to_owned(),
            |request| request.disk = "nvme1n1/x".to_owned(),
            |request| request.disk = String::new(),
            |request| request.disk = "n".repeat(LONGEST_NAME + 1),
            |request| request.proof = Proof::Serial(String::new()),
        ];
        for change in bad {
            assert_eq!(good(change), None);
        }
        let text = String::from_utf8(words::encode(&Request::Open(example()))).expect("text");
        for bad in ["", "first", " first ", " look", " memory -1", " memory 1 2"] {
            assert_eq!(parse_request(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(parse_request(text.replace("write", "append").as_bytes()), None);
        assert_eq!(parse_request(b"\xff"), None);
    }

    #[test]
    fn opener_that_ended_gives_errors() {
        let (lane, ended) = channel::pair().expect("a pair");
        let opener = Opener { opens: Lanes::new(vec![lane]), reads: Lanes::new(Vec::new()) };
        drop(ended);
        assert!(opener.open(&example()).is_err());
        let (lane, answering) = channel::pair().expect("a pair");
        let opener = Opener { opens: Lanes::new(Vec::new()), reads: Lanes::new(vec![lane]) };
        // Another answer than the one that was asked for.
        channel::send(&answering, &encode_answer(&Answer::HandedOver), &[]).expect("sent");
        let content = opener.recognise(answering.as_fd(), 0, || (), || ());
        assert_eq!(content.expect_err("no content"), DeviceError::Os(Errno::PIPE));
    }
}
