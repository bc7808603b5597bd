//! Whether a disk is held, as far as the kernel shows it without naming the holder: by the
//! exclusive claim, which every mount, swap area and layered device makes in whatever namespace,
//! and by sysfs.
use super::{Access, Device, DeviceError, DiskRoots, OpenRequest};
use ebs_csi_policy::facts::DeviceNumber;
use rustix::io::Errno;
use std::num::NonZeroU32;

/// A disk, or a partition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The kernel's name.
    pub name: String,
    /// The kernel's device number.
    pub number: DeviceNumber,
    /// The partition number; None for the whole disk.
    pub partition: Option<NonZeroU32>,
}

impl Device {
    /// Returns the whole disk and then its partitions, whether this device is the disk or one of
    /// the partitions.
    pub fn parts(&self, roots: &DiskRoots) -> Result<Vec<Part>, Errno> {
        let directory = format!("block/{}", self.disk);
        let mut parts = vec![Part { name: self.disk.clone(), number: self.whole, partition: None }];
        let names = roots.list_directory(&directory)?;
        // Partitions are the entries whose names begin with the disk's name.
        for name in names.into_iter().filter(|name| name.starts_with(&self.disk)) {
            let part = format!("{directory}/{name}");
            if roots.start_beneath(&part).is_some() {
                let number = roots.number_beneath(&part)?;
                let partition = roots.partition_of(number);
                parts.push(Part { name, number, partition });
            }
        }
        Ok(parts)
    }

    /// Returns whether somebody has claimed the part. A disk counts as claimed while one of its
    /// partitions is claimed, and a partition while its disk is. A part without a node cannot be
    /// opened, and counts as claimed.
    pub fn is_claimed(&self, roots: &DiskRoots, part: &Part) -> Result<bool, DeviceError> {
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
}

impl DiskRoots {
    /// Returns a block device (a logical volume of LVM, an array) that is built on this one.
    pub fn holder_of(&self, number: DeviceNumber) -> Result<Option<String>, Errno> {
        match self.list_directory(&format!("{}/holders", Self::directory_of_number(number))) {
            Ok(names) => Ok(names.into_iter().next()),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Returns a loop device whose backing file is one of these devices; a loop device claims
    /// nothing. A loop device that kubelet puts over a published volume is not returned: its
    /// backing file has another name, the path of the pod's volume.
    pub fn loop_device_on(&self, parts: &[Part]) -> Result<Option<String>, Errno> {
        for name in self.list_directory("block")? {
            if !name.starts_with("loop") {
                continue;
            }
            let file = match self.attribute(&name, "loop/backing_file") {
                Ok(file) => file,
                // The loop device is not in use, or is being detached right now.
                Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => continue,
                Err(errno) => return Err(errno),
            };
            let over = |part: &Part| file.strip_prefix("/dev/") == Some(part.name.as_str());
            if parts.iter().any(over) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the sequence number (`diskseq`) of the disk behind a device number, which may be
    /// that of a partition.
    pub fn sequence_of(&self, device: DeviceNumber) -> Option<u64> {
        let text = self.read_sysfs(&format!("{}/diskseq", self.directory_of_whole(device))).ok()?;
        text.parse().ok()
    }
}
