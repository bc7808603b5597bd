//! The held directories `/sys` and `/dev`, in which disks are looked for.
mod opening;
mod xen_disk;

use super::opener_messages::{
    Answer, Comparison, ComparisonResult, FirstFacts, ReadRequest, Times, Witness,
};
use super::opener_requests::{Opener, error_in};
use super::{Device, DeviceError, DiskPart, Proof};
use crate::disk::device_number;
use crate::disk::xen_disk_record::XenDiskRecord;
use crate::{path_resolution, sys};
use ebs_csi_policy::disk_class::DiskClass;
use ebs_csi_policy::facts::{Content, DeviceNumber};
use opening::Arrivals;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use std::num::NonZeroU32;

const SYSFS_LIMIT: usize = 4096;

/// The held directories in which disks are looked for.
#[derive(Debug)]
pub struct DiskRoots {
    sysfs: OwnedFd,
    pub(super) devices: OwnedFd,
    arrivals: Arrivals,
    class: DiskClass,
    accepts_names: bool,
    /// The volumes that disks without a serial were taken for.
    xen_disk_record: XenDiskRecord,
    /// Opens and reads disks, and knows those without a serial, where this process does not.
    opener: Option<Opener>,
}

impl DiskRoots {
    /// Opens and holds `/sys` and `/dev`.
    pub fn open(class: DiskClass) -> Result<Self, Errno> {
        Self::at("/sys", "/dev", class)
    }

    /// Opens and holds other directories instead of `/sys` and `/dev`.
    pub fn at(sysfs: &str, devices: &str, class: DiskClass) -> Result<Self, Errno> {
        let hold = |path: &str| {
            rustix::fs::open(
                path,
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        Ok(Self {
            sysfs: hold(sysfs)?,
            devices: hold(devices)?,
            arrivals: Arrivals::of(devices),
            class,
            accepts_names: false,
            xen_disk_record: XenDiskRecord::default(),
            opener: None,
        })
    }

    /// Returns the held `/dev`.
    pub(crate) fn devices(&self) -> BorrowedFd<'_> {
        self.devices.as_fd()
    }

    /// Leaves what disks without a serial are, and the opening and reading of disks, to the process
    /// at the other ends of these sockets.
    #[must_use]
    pub fn opened_by(mut self, lanes: Vec<OwnedFd>) -> Self {
        self.opener = Some(Opener::new(lanes));
        self.xen_disk_record = XenDiskRecord::default();
        self
    }

    /// Reads log page 0xD0 of a disk's NVMe controller. A simulated disk has no controller: the
    /// program that made its node keeps the page in a file beside the node, under the node's name
    /// and `.0xd0`. Returns None for a disk that has neither.
    pub fn statistics_page(&self, device: &Device) -> Result<Option<Vec<u8>>, Errno> {
        match device.opened.proof {
            Proof::Name => Ok(None),
            Proof::Serial(_) if self.class == DiskClass::LoopFile => {
                let name = format!("{}.0xd0", device.disk());
                let file = match path_resolution::open(&self.devices, &name, OFlags::RDONLY) {
                    Err(Errno::NOENT) => return Ok(None),
                    other => other?,
                };
                let mut page = vec![0_u8; sys::STATISTICS_PAGE];
                let length = rustix::io::read(&file, &mut page)?;
                page.truncate(length);
                Ok(Some(page))
            }
            // Only EC2's controllers have the page.
            Proof::Serial(_) if !self.is_ebs(&format!("block/{}", device.disk())) => Ok(None),
            Proof::Serial(_) => {
                let page = sys::nvme_statistics_page(device);
                page.map(Some).map_err(|error| sys::errno_of(&error))
            }
        }
    }

    /// Returns the device number and serial of every disk of the recognised kind that has a node in
    /// `/dev`.
    pub fn numbers_and_serials(&self) -> Result<Vec<(DeviceNumber, String)>, Errno> {
        let mut disks = Vec::new();
        for name in self.names()? {
            if let (Some(serial), Ok(number)) = (self.serial(&name), self.number_of(&name))
                && self.is_node_of(&name, number)
            {
                disks.push((number, serial));
            }
        }
        Ok(disks)
    }

    /// Returns the serial of the disk behind a device number, which may be that of a partition;
    /// None when the disk is gone or not of the recognised kind.
    pub fn serial_of(&self, device: DeviceNumber) -> Option<String> {
        self.serial_beneath(&self.directory_of_whole(device))
    }

    /// Returns the partition number of the device with this number; None for a whole disk, and for
    /// a device that is gone.
    pub fn partition_of(&self, device: DeviceNumber) -> Option<NonZeroU32> {
        let file = format!("{}/partition", Self::directory_of_number(device));
        self.read_sysfs(&file).ok()?.parse().ok()
    }

    /// Returns whether the kernel still knows a disk of this number.
    pub fn exists(&self, device: DeviceNumber) -> bool {
        self.open_sysfs(&Self::directory_of_number(device), OFlags::PATH).is_ok()
    }

    pub(super) fn directory_of_number(device: DeviceNumber) -> String {
        format!("dev/block/{}", device_number::text(device))
    }

    /// Returns the directory of the disk behind a device number, which may be that of a partition.
    pub(super) fn directory_of_whole(&self, device: DeviceNumber) -> String {
        let up = if self.partition_of(device).is_some() { "/.." } else { "" };
        format!("{}{up}", Self::directory_of_number(device))
    }

    /// Returns the number of errors that the kernel has found in the ext file system on the disk of
    /// this kernel name since the last check; 0 where nothing counts them.
    pub fn ext_errors(&self, name: &str) -> u64 {
        // `name` comes from the mount table, which repeats what the mount call was given.
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return 0;
        }
        self.read_sysfs(&format!("fs/ext4/{name}/errors_count"))
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

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
    pub fn loop_device_on(&self, parts: &[DiskPart]) -> Result<Option<String>, Errno> {
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
            let over = |part: &DiskPart| file.strip_prefix("/dev/") == Some(part.name.as_str());
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

    /// Returns the kernel names of the disks of the recognised kind that have a node here. A disk
    /// without a node cannot be worked on, and a machine may know a hundred such disks.
    fn names(&self) -> Result<Vec<String>, Errno> {
        let directory =
            path_resolution::open(&self.devices, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(directory)? {
            if let Ok(name) = entry?.file_name().to_str()
                && self.class.is_disk(name)
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn serial(&self, name: &str) -> Option<String> {
        self.serial_beneath(&format!("block/{name}"))
    }

    fn serial_beneath(&self, directory: &str) -> Option<String> {
        let read = |attribute: &str| self.read_sysfs(&format!("{directory}/{attribute}")).ok();
        // Of a disk of virtio-blk, the kernel asks the disk itself at each read.
        let id = read(self.class.id_attribute(read)?)?;
        let serial = match self.class {
            DiskClass::LoopFile => id.rsplit('/').next()?.split('.').next()?,
            DiskClass::Ebs | DiskClass::Guest => &id,
        };
        // Serials are padded with spaces to 20 characters. A disk of a hypervisor may have none.
        Some(serial.trim().replace('-', "")).filter(|serial| !serial.is_empty())
    }

    /// Returns whether the directory describes a disk of EC2's model.
    fn is_ebs(&self, directory: &str) -> bool {
        self.read_sysfs(&format!("{directory}/device/model"))
            .is_ok_and(|model| model.trim() == DiskClass::ebs_model())
    }

    fn number_of(&self, name: &str) -> Result<DeviceNumber, Errno> {
        self.number_beneath(&format!("block/{name}"))
    }

    /// Returns the size of a disk, in bytes; sysfs counts sectors of 512 bytes.
    fn size_beneath(&self, directory: &str) -> Result<u64, Errno> {
        let sectors: u64 =
            self.read_sysfs(&format!("{directory}/size"))?.parse().map_err(|_| Errno::ILSEQ)?;
        Ok(sectors.saturating_mul(512))
    }

    /// Returns the start of a partition, in sectors of 512 bytes; None for a whole disk.
    pub(super) fn start_beneath(&self, directory: &str) -> Option<u64> {
        self.read_sysfs(&format!("{directory}/start")).ok()?.parse().ok()
    }

    pub(super) fn number_beneath(&self, directory: &str) -> Result<DeviceNumber, Errno> {
        let text = self.read_sysfs(&format!("{directory}/dev"))?;
        device_number::parse(&text).ok_or(Errno::ILSEQ)
    }

    fn is_node_of(&self, name: &str, number: DeviceNumber) -> bool {
        path_resolution::hold(&self.devices, name)
            .and_then(fstat)
            .is_ok_and(|facts| device_number::of_node(&facts) == Some(number))
    }

    pub(super) fn attribute(&self, name: &str, attribute: &str) -> Result<String, Errno> {
        self.read_sysfs(&format!("block/{name}/{attribute}"))
    }

    pub(super) fn read_sysfs(&self, path: &str) -> Result<String, Errno> {
        let file = self.open_sysfs(path, OFlags::RDONLY)?;
        let mut bytes = vec![0_u8; SYSFS_LIMIT];
        let length = rustix::io::read(&file, &mut bytes)?;
        bytes.truncate(length);
        String::from_utf8(bytes)
            .map(|text| text.trim_end_matches('\n').to_owned())
            .map_err(|_| Errno::ILSEQ)
    }

    pub(super) fn list_directory(&self, directory: &str) -> Result<Vec<String>, Errno> {
        let held = self.open_sysfs(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(held)? {
            if let Ok(name) = entry?.file_name().to_str()
                && !name.starts_with('.')
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Opens a file of sysfs, and follows links: sysfs is the kernel's own, and `/sys/block`
    /// consists of links that lead upwards. With RESOLVE_BENEATH each of these links would fail
    /// while anything is being mounted anywhere (openat2(2), EAGAIN).
    fn open_sysfs(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat2(
            &self.sysfs,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_MAGICLINKS,
        )
    }
}

/// What is on a disk, read by the opener: this process maps no byte of a disk.
impl DiskRoots {
    /// Has what is on a claimed disk recognised, as `content::recognise_disk` does.
    /// `now` is in seconds since 1970. Calls `seems_blank` when the first bytes of the disk show
    /// nothing, and `meanwhile` while it waits afterwards.
    pub(crate) fn recognise(
        &self,
        disk: impl AsFd,
        now: u64,
        seems_blank: impl FnOnce(),
        meanwhile: impl FnMut(),
    ) -> Result<Content, DeviceError> {
        self.opener()?.recognise(disk.as_fd(), now, seems_blank, meanwhile)
    }

    /// Has the first bytes of a disk read, through the page cache unless the descriptor is one for
    /// direct reads.
    pub(crate) fn first_facts(&self, disk: impl AsFd) -> Result<FirstFacts, DeviceError> {
        match self.opener()?.read(ReadRequest::First, &[disk.as_fd()])? {
            (Answer::First(facts), _) => Ok(facts),
            (answer, _) => Err(error_in(answer)),
        }
    }

    /// Returns an empty file in memory of so many bytes; there is one such file.
    pub(crate) fn memory(&self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        match self.opener()?.read(ReadRequest::Memory { bytes }, &[])? {
            (Answer::Memory, Some(memory)) => Ok(memory),
            (answer, _) => Err(error_in(answer)),
        }
    }

    /// Returns the times that a claimed disk has where the format in memory has its own.
    pub(crate) fn times(&self, claim: impl AsFd, times: Times) -> Result<Vec<u64>, DeviceError> {
        match self.opener()?.read(ReadRequest::Times(times), &[claim.as_fd()])? {
            (Answer::Times(times), _) => Ok(times),
            (answer, _) => Err(error_in(answer)),
        }
    }

    /// Compares a claimed disk with the format in memory.
    pub(crate) fn compare(
        &self,
        claim: impl AsFd,
        comparison: Comparison,
    ) -> Result<ComparisonResult, DeviceError> {
        match self.opener()?.read(ReadRequest::Compare(comparison), &[claim.as_fd()])? {
            (Answer::Compared(result), _) => Ok(result),
            (answer, _) => Err(error_in(answer)),
        }
    }

    /// Returns whether a piece of a claimed disk is as it was.
    pub(crate) fn is_unchanged(
        &self,
        claim: impl AsFd,
        witness: Witness,
    ) -> Result<bool, DeviceError> {
        match self.opener()?.read(ReadRequest::IsUnchanged(witness), &[claim.as_fd()])? {
            (Answer::IsUnchanged(unchanged), _) => Ok(unchanged),
            (answer, _) => Err(error_in(answer)),
        }
    }

    fn opener(&self) -> Result<&Opener, Errno> {
        self.opener.as_ref().ok_or(Errno::NOSYS)
    }
}

#[cfg(test)]
mod tests;
