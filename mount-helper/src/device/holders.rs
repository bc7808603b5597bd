//! Who holds a disk, as far as the kernel tells without naming him: the exclusive claim, which
//! every mount, swap area and device above makes in whatever namespace, and sysfs.
use super::{Access, Asked, Device, DeviceError, DiskRoots};
use rustix::io::Errno;
use std::num::NonZeroU32;

/// A disk, or a partition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Kernel's name.
    pub name: String,
    /// Kernel's device number.
    pub number: u64,
    /// Its own number among the partitions; None for the whole disk.
    pub partition: Option<NonZeroU32>,
}

impl Device {
    /// The whole disk, and then its partitions, whichever of them this is.
    pub fn parts(&self, roots: &DiskRoots) -> Result<Vec<Part>, Errno> {
        let directory = format!("block/{}", self.disk);
        let mut parts = vec![Part {
            name: self.disk.clone(),
            number: self.whole,
            partition: None,
        }];
        let names = roots.listed(&directory)?;
        // The rest of what sysfs says of the disk has other names.
        for name in names
            .into_iter()
            .filter(|name| name.starts_with(&self.disk))
        {
            let part = format!("{directory}/{name}");
            if roots.start_beneath(&part).is_some() {
                let number = roots.number_beneath(&part)?;
                let partition = roots.partition_of(number);
                parts.push(Part {
                    name,
                    number,
                    partition,
                });
            }
        }
        Ok(parts)
    }

    /// Somebody has claimed a part of the disk. So is a disk while one of its partitions is, and a
    /// partition while its disk is. One without a node cannot be asked, and counts as claimed.
    pub fn is_claimed(&self, roots: &DiskRoots, part: &Part) -> Result<bool, DeviceError> {
        let asked = Asked {
            partition: part.partition,
            exclusive: true,
            ..self.asked(Access::ReadOnly)
        };
        match roots.have_opened(&asked) {
            Ok(claim) if claim.number() == part.number => Ok(false),
            Ok(_) => Err(DeviceError::Mismatch),
            Err(DeviceError::Absent | DeviceError::Os(Errno::BUSY | Errno::NOENT)) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl DiskRoots {
    /// A block device (a volume of LVM, an array) that is made of this one.
    pub fn holder_of(&self, number: u64) -> Result<Option<String>, Errno> {
        match self.listed(&format!("{}/holders", Self::by_number(number))) {
            Ok(names) => Ok(names.into_iter().next()),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// A loop device that lies over one of these, which claims nothing. Kubelet lays one over what
    /// it shows to a pod, by the name that the pod's place has, which is another.
    pub fn loop_over(&self, parts: &[Part]) -> Result<Option<String>, Errno> {
        for name in self.listed("block")? {
            if !name.starts_with("loop") {
                continue;
            }
            let file = match self.attribute(&name, "loop/backing_file") {
                Ok(file) => file,
                // It is not in use, or is let go right now.
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

    /// Sequence of the disk behind a device number, or of the one that this is a partition of.
    pub fn sequence_of(&self, device: u64) -> Option<u64> {
        let directory = Self::by_number(device);
        let up = if self.partition_of(device).is_some() {
            "/.."
        } else {
            ""
        };
        let text = self.read_sysfs(&format!("{directory}{up}/diskseq")).ok()?;
        text.parse().ok()
    }
}
