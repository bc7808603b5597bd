//! A volume's disk: found by its serial in sysfs, held open, and compared again with the facts of
//! that time whenever they matter.
mod disk_roots;
pub(crate) mod opener_messages;
pub mod opener_requests;
mod words;

pub use disk_roots::DiskRoots;
pub use opener_messages::XenDisk;

use crate::disk::device_number::of_node;
use crate::path_resolution::{self, HeldPath};
use crate::sys;
use ebs_csi_policy::facts::{DeviceNumber, DiskFacts};
use ebs_csi_wire::Node;
use opener_messages::OpenRequest;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::num::NonZeroU32;
use std::time::Duration;

/// Why there is no disk to work on.
#[derive(Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// No disk has the serial.
    Absent,
    /// More than one disk has it.
    Ambiguous,
    /// The identity of a disk changed during the work, or a disk has the serial but not the model.
    Mismatch,
    /// The disk at the device name that EC2 was told has no serial.
    WithoutSerial,
    /// This process may not open the disk's node, which has this owner and mode.
    Closed(Node),
    /// A system call failed.
    Os(Errno),
}

impl From<Errno> for DeviceError {
    fn from(errno: Errno) -> Self {
        Self::Os(errno)
    }
}

fn errno(error: std::io::Error) -> DeviceError {
    DeviceError::Os(sys::errno_of(&error))
}

/// What a disk is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing.
    ReadWrite,
    /// Reading.
    ReadOnly,
}

/// A disk, or a partition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPart {
    /// The kernel's name.
    pub name: String,
    /// The kernel's device number.
    pub number: DeviceNumber,
    /// The partition number; None for the whole disk.
    pub partition: Option<NonZeroU32>,
}

/// What a disk was found by.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    Serial(String),
    /// The disk has no serial, and stands at the name that EC2 was told, or stood there when it was
    /// taken for the volume.
    Name,
}

/// The sequence number of a disk (`diskseq`), which the kernel gives to each attachment once, and
/// the device number of the disk or of a partition of the disk.
pub(crate) type Attachment = (u64, DeviceNumber);

/// A disk that belonged to the volume when it was found. The descriptor pins the disk: the kernel
/// cannot give its device number to another disk while this value lives.
#[derive(Debug)]
pub struct Device {
    fd: OwnedFd,
    opened: OpenedDisk,
}

/// The facts about a disk when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenedDisk {
    name: String,
    /// Name of the whole disk, which equals the device's own name unless the device is a partition.
    disk: String,
    partition: Option<NonZeroU32>,
    proof: Proof,
    number: DeviceNumber,
    /// Number of the whole disk.
    whole: DeviceNumber,
    sequence: u64,
    bytes: u64,
    whole_bytes: u64,
    start: Option<u64>,
}

impl Device {
    /// Returns the facts about the disk when it was opened.
    pub(crate) fn opened(&self) -> &OpenedDisk {
        &self.opened
    }

    /// Returns the size when the device was found, in bytes.
    pub fn bytes(&self) -> u64 {
        self.opened.bytes
    }

    /// Returns the size of the whole disk when the device was found, in bytes.
    pub fn whole_bytes(&self) -> u64 {
        self.opened.whole_bytes
    }

    /// Returns the kernel's device number.
    pub fn number(&self) -> DeviceNumber {
        self.opened.number
    }

    /// Returns size and number, as the policy judges them.
    pub(crate) fn facts(&self) -> DiskFacts {
        DiskFacts {
            bytes: self.opened.bytes,
            whole_bytes: self.opened.whole_bytes,
            device: self.opened.number,
            // A disk that does not tell is not written to.
            read_only: sys::is_read_only(self).unwrap_or(true),
        }
    }

    /// Returns the kernel's device number of the whole disk.
    pub fn whole(&self) -> DeviceNumber {
        self.opened.whole
    }

    /// Returns the kernel's sequence number of this attachment (`diskseq`). No two attachments have
    /// the same number, not even two of one disk.
    pub fn sequence(&self) -> u64 {
        self.opened.sequence
    }

    /// Returns the identity of this attachment of the disk or partition.
    pub fn attachment(&self) -> Attachment {
        (self.opened.sequence, self.opened.number)
    }

    /// Returns the path of the device, as the mount table is going to show it.
    pub fn path(&self) -> String {
        format!("/dev/{}", self.opened.name)
    }

    /// Returns the kernel's name of the whole disk.
    pub fn disk(&self) -> &str {
        &self.opened.disk
    }

    /// Returns whether a device of this kernel name and number shares bytes with this one: whether
    /// it is the same device, the disk that this is a partition of, or a partition of this disk.
    pub fn overlaps(&self, roots: &DiskRoots, name: &str, number: DeviceNumber) -> bool {
        let opened = &self.opened;
        let of_this_disk = || match &opened.proof {
            Proof::Serial(serial) => roots.serial_of(number).as_ref() == Some(serial),
            Proof::Name => roots.xen_disk(number) == self.by_name(),
        };
        let is_part = || {
            name.strip_prefix(opened.disk.as_str()).is_some_and(|rest| {
                let digits = rest.strip_prefix('p').unwrap_or(rest);
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        if number == opened.number {
            true
        } else if opened.name == opened.disk {
            is_part() && of_this_disk()
        } else {
            name == opened.disk && of_this_disk()
        }
    }

    /// Checks that sysfs, the node and the held descriptor still agree on one disk: number, serial,
    /// sequence and size.
    pub fn verify(&self, roots: &DiskRoots) -> Result<(), DeviceError> {
        let opened = &self.opened;
        let facts = fstat(&self.fd)?;
        let sequence = roots.attribute(&opened.disk, "diskseq")?;
        let directory = if opened.name == opened.disk {
            format!("block/{}", opened.disk)
        } else {
            format!("block/{}/{}", opened.disk, opened.name)
        };
        let same = of_node(&facts) == Some(opened.number)
            && roots.number_beneath(&directory)? == opened.number
            && roots.start_beneath(&directory) == opened.start
            && roots.matches_proof(&opened.disk, &opened.proof)
            && sequence.parse() == Ok(opened.sequence)
            && sys::disk_sequence(&self.fd).map_err(errno)? == opened.sequence
            && sys::block_bytes(&self.fd).map_err(errno)? == opened.bytes;
        if same { Ok(()) } else { Err(DeviceError::Mismatch) }
    }

    /// Returns the whole disk when it has no serial and was found by its name.
    pub fn by_name(&self) -> Option<XenDisk> {
        match self.opened.proof {
            Proof::Serial(_) => None,
            Proof::Name => {
                Some(XenDisk { sequence: self.opened.sequence, number: self.opened.whole })
            }
        }
    }

    /// Returns whether nobody has claimed the disk or a partition of it. Every mount claims its
    /// disk, in whatever mount namespace.
    pub fn is_free(&self, roots: &DiskRoots) -> Result<bool, DeviceError> {
        self.verify(roots)?;
        let opened = roots.open_by_request(&OpenRequest {
            partition: None,
            exclusive: true,
            ..self.open_request(Access::ReadOnly)
        });
        // The answer counts only if it is still about this disk.
        self.verify(roots)?;
        match opened {
            Ok(whole) if whole.opened.number == self.opened.whole => Ok(true),
            Ok(_) => Err(DeviceError::Mismatch),
            Err(DeviceError::Os(Errno::BUSY)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the whole disk and then its partitions, whether this device is the disk or one of
    /// the partitions.
    pub fn parts(&self, roots: &DiskRoots) -> Result<Vec<DiskPart>, Errno> {
        let directory = format!("block/{}", self.opened.disk);
        let mut parts = vec![DiskPart {
            name: self.opened.disk.clone(),
            number: self.opened.whole,
            partition: None,
        }];
        let names = roots.list_directory(&directory)?;
        // Partitions are the entries whose names begin with the disk's name.
        for name in names.into_iter().filter(|name| name.starts_with(&self.opened.disk)) {
            let part = format!("{directory}/{name}");
            if roots.start_beneath(&part).is_some() {
                let number = roots.number_beneath(&part)?;
                let partition = roots.partition_of(number);
                parts.push(DiskPart { name, number, partition });
            }
        }
        Ok(parts)
    }

    /// Returns whether somebody has claimed the part. A disk counts as claimed while one of its
    /// partitions is claimed, and a partition while its disk is. A part without a node cannot be
    /// opened, and counts as claimed.
    pub fn is_claimed(&self, roots: &DiskRoots, part: &DiskPart) -> Result<bool, DeviceError> {
        let request = OpenRequest {
            partition: part.partition,
            exclusive: true,
            ..self.open_request(Access::ReadOnly)
        };
        match roots.open_by_request(&request) {
            Ok(claim) if claim.number() == part.number => Ok(false),
            Ok(_) => Err(DeviceError::Mismatch),
            Err(DeviceError::Absent | DeviceError::Os(Errno::BUSY | Errno::NOENT)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn open_request(&self, access: Access) -> OpenRequest {
        OpenRequest {
            disk: self.opened.disk.clone(),
            partition: self.opened.partition,
            proof: self.opened.proof.clone(),
            access,
            exclusive: false,
            direct: false,
        }
    }

    /// Opens the same disk once more.
    fn reopen(&self, roots: &DiskRoots, request: &OpenRequest) -> Result<OwnedFd, DeviceError> {
        let reopened = roots.open_by_request(request)?;
        if reopened.opened.number == self.opened.number
            && reopened.opened.sequence == self.opened.sequence
        {
            Ok(reopened.fd)
        } else {
            Err(DeviceError::Mismatch)
        }
    }

    /// Opens the same disk once more, for direct reads that bypass the page cache.
    pub fn read_directly(&self, roots: &DiskRoots) -> Result<OwnedFd, DeviceError> {
        let direct = OpenRequest { direct: true, ..self.open_request(Access::ReadOnly) };
        self.reopen(roots, &direct)
    }

    /// Opens the disk's node with O_PATH: the descriptor names the node and permits no reading or
    /// writing.
    pub(crate) fn hold_node(&self, roots: &DiskRoots) -> Result<HeldPath, DeviceError> {
        let node = path_resolution::hold(&roots.devices, &self.opened.name)?;
        if of_node(&fstat(&node)?) == Some(self.opened.number) {
            Ok(node)
        } else {
            Err(DeviceError::Mismatch)
        }
    }

    /// Claims the disk for this process alone. Waits briefly while a program that only reads disks
    /// (udev, a scanner) holds it.
    pub fn claim(&self, roots: &DiskRoots, access: Access) -> Result<Claim, DeviceError> {
        let claim = OpenRequest { exclusive: true, ..self.open_request(access) };
        let mut tries = 0;
        loop {
            match self.reopen(roots, &claim) {
                Err(DeviceError::Os(Errno::BUSY)) if tries < 20 => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(25));
                }
                other => return other.map(Claim),
            }
        }
    }

    /// Writes back to the disk what the page cache holds of it.
    pub fn flush(&self) -> Result<(), Errno> {
        rustix::fs::fsync(&self.fd)
    }
}

/// An exclusive open of a disk. It keeps others from the disk until it is dropped.
#[derive(Debug)]
pub struct Claim(OwnedFd);

impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
