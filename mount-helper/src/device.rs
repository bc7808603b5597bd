//! A volume's disk: found by its serial in sysfs, held open, and compared with what was found whenever it matters.
mod arrivals;
mod disk_roots;
mod holders;
pub mod opener;

pub use disk_roots::{DiskRoots, XenDisk};
pub use holders::Part;

use crate::attachments::Attachment;
use crate::sys;
use ebs_csi_wire::Node;
use opener::Asked;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;
use std::num::NonZeroU32;
use std::time::Duration;

/// How a disk says whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognition {
    /// NVMe serial and model.
    Nvme,
    /// File name behind a loop device. Only under the sandbox policy.
    LoopFile,
}

impl Recognition {
    /// The name is one that the kernel gives to a whole disk of this kind: `nvme1n1`, `loop7`.
    fn is_disk(self, name: &str) -> bool {
        let numbers =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match self {
            Self::Nvme => name
                .strip_prefix("nvme")
                .and_then(|rest| rest.split_once('n'))
                .is_some_and(|(controller, namespace)| numbers(controller) && numbers(namespace)),
            Self::LoopFile => name.strip_prefix("loop").is_some_and(numbers),
        }
    }
}

/// Why there is no disk to work on.
#[derive(Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// No disk has the serial.
    Absent,
    /// More than one disk has it.
    Ambiguous,
    /// A disk changed its identity while it was worked on, or has the serial but not the model.
    Mismatch,
    /// The disk at the name that EC2 was told says nothing of whose it is.
    WithoutSerial,
    /// The disk's node, with this owner and mode, may not be opened by this process.
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
    DeviceError::Os(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// What a disk is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and write.
    ReadWrite,
    /// Read.
    ReadOnly,
}

/// What a disk was found by.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    /// It says whose it is.
    Serial(String),
    /// It says nothing, and stands at the name that EC2 was told, or did when it was taken for the volume.
    Name,
}

/// A disk that was the volume's when it was found. The descriptor pins it: its number cannot be given to another
/// disk while this value lives.
#[derive(Debug)]
pub struct Device {
    fd: OwnedFd,
    name: String,
    /// Name of the whole disk, which is the device's own unless this is a partition.
    disk: String,
    partition: Option<NonZeroU32>,
    number: u64,
    sequence: u64,
    bytes: u64,
    whole_bytes: u64,
    start: Option<u64>,
    /// Number of the whole disk.
    whole: u64,
    proof: Proof,
}

impl Device {
    /// Size when it was found, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Size of the whole disk when it was found, in bytes.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// Kernel's device number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Kernel's number of the whole disk.
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Kernel's count of attachments when it appeared: no two disks have the same, however often one comes back.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Which attachment of which disk, or part of one, this is.
    pub fn attachment(&self) -> Attachment {
        (self.sequence, self.number)
    }

    /// Name that the mount table is going to show.
    pub fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Kernel's name of the whole disk.
    pub fn disk(&self) -> &str {
        &self.disk
    }

    /// A device of this kernel name and number has bytes in common with this one: it is the same, the disk that this is a partition
    /// of, or a partition of this disk.
    pub fn overlaps(&self, roots: &DiskRoots, name: &str, number: u64) -> bool {
        let of_this_disk = || match &self.proof {
            Proof::Serial(serial) => roots
                .serial_of(number)
                .is_ok_and(|other| other.as_ref() == Some(serial)),
            Proof::Name => roots.xen_disk(number) == self.by_name(),
        };
        let is_part = || {
            name.strip_prefix(self.disk.as_str()).is_some_and(|rest| {
                let digits = rest.strip_prefix('p').unwrap_or(rest);
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        if number == self.number {
            true
        } else if self.name == self.disk {
            is_part() && of_this_disk()
        } else {
            name == self.disk && of_this_disk()
        }
    }

    /// Sysfs, the node and the held descriptor still tell of one disk: number, serial, sequence and size.
    pub fn verify(&self, roots: &DiskRoots) -> Result<(), DeviceError> {
        let facts = fstat(&self.fd)?;
        let sequence = roots.attribute(&self.disk, "diskseq")?;
        let directory = if self.name == self.disk {
            format!("block/{}", self.disk)
        } else {
            format!("block/{}/{}", self.disk, self.name)
        };
        let same = FileType::from_raw_mode(facts.st_mode) == FileType::BlockDevice
            && facts.st_rdev == self.number
            && roots.number_beneath(&directory)? == self.number
            && roots.start_beneath(&directory) == self.start
            && roots.proves(&self.disk, &self.proof)
            && sequence.parse() == Ok(self.sequence)
            && sys::disk_sequence(&self.fd).map_err(errno)? == self.sequence
            && sys::block_bytes(&self.fd).map_err(errno)? == self.bytes;
        if same {
            Ok(())
        } else {
            Err(DeviceError::Mismatch)
        }
    }

    /// The whole disk, when it has no serial and was found by its name.
    pub fn by_name(&self) -> Option<XenDisk> {
        match self.proof {
            Proof::Serial(_) => None,
            Proof::Name => Some(XenDisk {
                sequence: self.sequence,
                number: self.whole,
            }),
        }
    }

    /// Nobody has claimed the disk or a part of it, as every mount does wherever it is.
    pub fn is_free(&self, roots: &DiskRoots) -> Result<bool, DeviceError> {
        self.verify(roots)?;
        let opened = roots.have_opened(&Asked {
            partition: None,
            exclusive: true,
            ..self.asked(Access::ReadOnly)
        });
        // What was found claimed, or not, is still this disk.
        self.verify(roots)?;
        match opened {
            Ok(whole) if whole.number == self.whole => Ok(true),
            Ok(_) => Err(DeviceError::Mismatch),
            Err(DeviceError::Os(Errno::BUSY)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// This disk, as it is asked of who opens it.
    fn asked(&self, access: Access) -> Asked {
        Asked {
            disk: self.disk.clone(),
            partition: self.partition,
            proof: self.proof.clone(),
            access,
            exclusive: false,
            direct: false,
        }
    }

    /// Open the same disk once more.
    fn again(&self, roots: &DiskRoots, asked: &Asked) -> Result<OwnedFd, DeviceError> {
        let again = roots.have_opened(asked)?;
        if again.number == self.number && again.sequence == self.sequence {
            Ok(again.fd)
        } else {
            Err(DeviceError::Mismatch)
        }
    }

    /// Open the same disk once more, to read past the kernel's memory of it.
    pub fn read_directly(&self, roots: &DiskRoots) -> Result<OwnedFd, DeviceError> {
        let direct = Asked {
            direct: true,
            ..self.asked(Access::ReadOnly)
        };
        self.again(roots, &direct)
    }

    /// A handle on the disk's node, which permits nothing but naming it.
    pub fn hold_node(&self, roots: &DiskRoots) -> Result<OwnedFd, DeviceError> {
        let node = roots.open_node(&self.name, OFlags::PATH)?;
        let facts = fstat(&node)?;
        if FileType::from_raw_mode(facts.st_mode) == FileType::BlockDevice
            && facts.st_rdev == self.number
        {
            Ok(node)
        } else {
            Err(DeviceError::Mismatch)
        }
    }

    /// Claim the disk for this process alone. Somebody who only looks (udev, a scanner) is waited for, briefly.
    pub fn claim(&self, roots: &DiskRoots, access: Access) -> Result<OwnedFd, DeviceError> {
        let claim = Asked {
            exclusive: true,
            ..self.asked(access)
        };
        let mut tries = 0;
        loop {
            match self.again(roots, &claim) {
                Err(DeviceError::Os(Errno::BUSY)) if tries < 20 => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(25));
                }
                other => return other,
            }
        }
    }

    /// Write what the kernel holds of this disk to the disk.
    pub fn flush(&self) -> Result<(), Errno> {
        rustix::fs::fsync(&self.fd)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
