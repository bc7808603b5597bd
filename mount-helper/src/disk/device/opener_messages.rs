//! The messages between broker and opener: one datagram each ([`words`]). A request to open names a
//! disk and the proof by which the broker knows the disk; a request to read comes with the
//! descriptor of the disk.
use super::words::{self, words};
use super::{Access, DeviceError, OpenedDisk, Proof};
use ebs_csi_policy::facts::{Content, DeviceNumber, ExtFacts};
use ebs_csi_wire::{DeviceName, Features, FsType, VolumeId};
use std::num::NonZeroU32;

/// Length of the longest name that is accepted for a disk.
const LONGEST_NAME: usize = 32;

/// What the broker asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// To open a disk.
    Open(OpenRequest),
    /// To read the disk that comes along.
    Read(ReadRequest),
    /// To open the disk without a serial at the name that EC2 was told.
    FindNamed(NameRequest),
    /// To open a disk without a serial that is known already.
    OpenKnown(KnownRequest),
    /// The disk without a serial behind a device number.
    DiskAt { number: DeviceNumber },
    /// The disks without a serial that are attached and were taken for a volume, or for any.
    DisksOf { volume: Option<VolumeId> },
    /// To record that a disk without a serial is taken for a volume.
    Remember(KnownDisk),
}

/// What the broker asks about the content of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadRequest {
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
    DiskAt(Option<KnownDisk>),
    Disks(Vec<KnownDisk>),
    Remembered(Remembered),
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

/// One attachment of a whole disk without a serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct XenDisk {
    /// The kernel's sequence number of this attachment (`diskseq`).
    pub sequence: u64,
    /// The kernel's device number, which the next disk at the same name gets again.
    pub number: DeviceNumber,
}

/// A disk without a serial, or a partition of it, at the name that EC2 was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameRequest {
    pub(super) name: DeviceName,
    pub(super) partition: Option<NonZeroU32>,
    pub(crate) access: Access,
}

/// A disk without a serial that is known already, or a partition of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownRequest {
    pub(crate) disk: XenDisk,
    pub(crate) partition: Option<NonZeroU32>,
    pub(crate) access: Access,
}

/// A disk without a serial, and the volume that it was taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownDisk {
    pub(crate) disk: XenDisk,
    pub(crate) volume: Option<VolumeId>,
}

/// Whether a disk is recorded as taken for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remembered {
    Now,
    Before,
    /// It was taken for another volume.
    AsAnother,
}

/// What the first bytes of a disk show of the file system whose superblock stands there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FirstFacts {
    /// Its identifier; None when there are superblocks of two file systems.
    pub(crate) identifier: Option<[u8; 16]>,
    pub(crate) features: Option<Features>,
    /// The superblock of an ext file system.
    pub(crate) ext: Option<ExtFacts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparisonResult {
    /// This format wrote all of it.
    Explained,
    /// At least one byte comes from something else. The value is a piece of the disk with such a
    /// byte; None where there is no such piece.
    Unexplained(Option<Witness>),
    /// The format in memory has another geometry (the disk may have other sectors), so nothing can
    /// be compared.
    Incomparable,
}

/// A piece of a disk, as it was found, that no format of its volume explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) checksum: u32,
}

words! {
    struct OpenRequest { disk, partition, proof, access, exclusive, direct }
    struct Times { bytes, time }
    struct Comparison { fs, bytes }
    struct NameRequest { name, partition, access }
    struct KnownRequest { disk, partition, access }
    struct XenDisk { sequence, number }
    struct KnownDisk { disk, volume }
    struct Witness { at, length, checksum }
    struct FirstFacts { identifier, features, ext }
    struct OpenedDisk {
        name, disk, partition, proof, number, whole, sequence, bytes, whole_bytes, start
    }
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
        "read" => Read(request),
        "find-named" => FindNamed(request),
        "open-known" => OpenKnown(request),
        "disk-at" => DiskAt { number },
        "disks-of" => DisksOf { volume },
        "remember" => Remember(disk),
    }
    enum ReadRequest {
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
        "disk-at" => DiskAt(disk),
        "disks" => Disks(disks),
        "remembered" => Remembered(remembered),
        "failed" => Failed(error),
    }
    enum ComparisonResult {
        "explained" => Explained,
        "unexplained" => Unexplained(witness),
        "incomparable" => Incomparable,
    }
    enum Remembered {
        "now" => Now,
        "before" => Before,
        "as-another" => AsAnother,
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

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::facts::{ExtLevel, XfsFacts};
    use ebs_csi_wire::{Node, Signature};
    use rustix::io::Errno;

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
            Request::Read(ReadRequest::Recognise { now: 1 }),
            Request::Read(ReadRequest::First),
            Request::Read(ReadRequest::Memory { bytes: 1 << 40 }),
            Request::Read(ReadRequest::Times(Times { bytes: 1, time: 2 })),
            Request::Read(ReadRequest::Compare(Comparison { fs: FsType::Xfs, bytes: 3 })),
            Request::Read(ReadRequest::IsUnchanged(Witness { at: 4, length: 5, checksum: 6 })),
            Request::FindNamed(NameRequest {
                name: DeviceName::parse("/dev/xvdba").expect("a name"),
                partition: None,
                access: Access::ReadOnly,
            }),
            Request::OpenKnown(KnownRequest {
                disk: known().disk,
                partition: NonZeroU32::new(1),
                access: Access::ReadWrite,
            }),
            Request::DiskAt { number: DeviceNumber(7) },
            Request::DisksOf { volume: None },
            Request::DisksOf { volume: known().volume },
            Request::Remember(known()),
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
                disk: "nvme1n1".to_owned(),
                partition: NonZeroU32::new(2),
                proof: Proof::Name,
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
            Answer::DiskAt(None),
            Answer::DiskAt(Some(known())),
            Answer::Disks(vec![]),
            Answer::Disks(vec![known(), KnownDisk { volume: None, ..known() }]),
            Answer::Remembered(Remembered::Now),
            Answer::Remembered(Remembered::Before),
            Answer::Remembered(Remembered::AsAnother),
        ];
        answers.extend(errors.map(Answer::Failed));
        answers.extend(contents.map(Answer::Content));
        answers.extend(results.map(Answer::Compared));
        answers
    }

    fn known() -> KnownDisk {
        let volume = VolumeId::parse("vol-0123456789abcdef0").expect("an id");
        let disk = XenDisk { sequence: 1, number: DeviceNumber(2) };
        KnownDisk { disk, volume: Some(volume) }
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
        for bad in
            ["", "read first", " read first ", " look", " read memory -1", " read memory 1 2"]
        {
            assert_eq!(parse_request(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(parse_request(text.replace("write", "append").as_bytes()), None);
        assert_eq!(parse_request(b"\xff"), None);
    }
}
