//! The kernel's number of a device: its text form `MAJOR:MINOR`, and the number of a device node.
use ebs_csi_policy::facts::DeviceNumber;
use rustix::fs::{FileType, Stat, major, makedev, minor};

/// Parses `MAJOR:MINOR`, as sysfs and mountinfo write a device number.
pub(crate) fn parse(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(DeviceNumber(makedev(major.parse().ok()?, minor.parse().ok()?)))
}

/// Formats the number as `MAJOR:MINOR`.
pub(crate) fn text(number: DeviceNumber) -> String {
    format!("{}:{}", major(number.0), minor(number.0))
}

/// Returns whether the number belongs to no disk. A file system without a disk (tmpfs, NFS,
/// overlay), and btrfs, has a number of its own with major number 0.
pub(crate) fn is_anonymous(number: DeviceNumber) -> bool {
    major(number.0) == 0
}

/// Returns the number of the disk whose node this is; None for a file of another kind.
pub(crate) fn of_node(node: &Stat) -> Option<DeviceNumber> {
    (FileType::from_raw_mode(node.st_mode) == FileType::BlockDevice)
        .then_some(DeviceNumber(node.st_rdev))
}

/// Returns the number of the device that holds the file.
pub(crate) fn of_filesystem(file: &Stat) -> DeviceNumber {
    DeviceNumber(file.st_dev)
}
