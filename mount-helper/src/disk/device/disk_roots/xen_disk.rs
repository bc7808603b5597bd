//! Disks without a serial: those of Xen, which the kernel names after the device name that EC2 was
//! told. The broker asks the opener about them.
use super::DiskRoots;
use crate::disk::device::opener_messages::{
    Answer, KnownDisk, KnownRequest, NameRequest, Remembered, Request, XenDisk,
};
use crate::disk::device::opener_requests::error_in;
use crate::disk::device::{Access, Device, DeviceError, Proof};
use crate::disk::xen_disk_record::XenDiskRecord;
use ebs_csi_policy::disk_class::DiskClass;
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_wire::{DeviceName, Disk, VolumeId};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::num::NonZeroU32;

/// The `modalias` that the kernel gives to a virtual disk of Xen (`xenbus_probe.c`).
const XEN_DISK: &str = "xen:vbd";
/// Attributes that can hold the serial of a disk (sysfs, `block/NAME`).
const SERIALS: [&str; 4] = ["serial", "device/serial", "wwid", "device/wwid"];

impl DiskRoots {
    /// Accepts Xen disks without a serial by their name.
    pub fn accepting_names(mut self) -> Self {
        self.accepts_names = true;
        self
    }

    /// Keeps this record of the volumes that such disks are taken for.
    pub(crate) fn recording(mut self, record: XenDiskRecord) -> Self {
        self.xen_disk_record = record;
        self
    }

    /// Returns the descriptor of the record's file, to which this process writes.
    pub(crate) fn written_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.xen_disk_record.descriptor()
    }

    /// Returns whether the machine has a disk of Xen. Each machine that is built on Xen has one.
    pub fn has_xen_disk(&self) -> bool {
        self.list_directory("block").is_ok_and(|names| names.iter().any(|name| self.is_xen(name)))
    }

    /// Returns whether `name` has the form of a kernel name of a disk that can be a volume, or of a
    /// partition of such a disk.
    pub fn may_be_disk_name(&self, name: &str) -> bool {
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is = |class: DiskClass| {
            let part = |(disk, part): (&str, &str)| class.is_disk(disk) && digits(part);
            // A partition of `vda` is `vda1`.
            let whole = name.trim_end_matches(|last: char| last.is_ascii_digit());
            class.is_disk(whole) || class.is_disk(name) || name.rsplit_once('p').is_some_and(part)
        };
        let xens = name.starts_with("xvd") || (self.accepts_names && name.starts_with("sd"));
        is(DiskClass::Ebs) || is(self.class) || xens
    }

    /// Returns the disk without a serial behind a device number, which may be that of a partition.
    /// Returns None for every other disk, and where such disks are not accepted.
    pub fn xen_disk(&self, device: DeviceNumber) -> Option<XenDisk> {
        self.known_disk(device).map(|known| known.disk)
    }

    /// Returns the same disk, and the volume that it was taken for.
    pub(crate) fn known_disk(&self, number: DeviceNumber) -> Option<KnownDisk> {
        if !self.accepts_names {
            return None;
        }
        if let Some(opener) = &self.opener {
            return match opener.ask(&Request::DiskAt { number }) {
                Ok(Answer::DiskAt(known)) => known,
                _ => None,
            };
        }
        let directory = self.directory_of_whole(number);
        if !self.is_xen_without_serial(&directory) {
            return None;
        }
        let disk = XenDisk {
            sequence: self.read_sysfs(&format!("{directory}/diskseq")).ok()?.parse().ok()?,
            number: self.number_beneath(&directory).ok()?,
        };
        Some(KnownDisk { disk, volume: self.xen_disk_record.volume_of(&disk) })
    }

    /// Returns the attached disks without a serial that were taken for this volume, or for any, the
    /// latest first.
    pub(crate) fn disks_taken_for(
        &self,
        volume: Option<&VolumeId>,
    ) -> Result<Vec<KnownDisk>, DeviceError> {
        if !self.accepts_names {
            return Ok(Vec::new());
        }
        if let Some(opener) = &self.opener {
            return match opener.ask(&Request::DisksOf { volume: volume.cloned() })? {
                Answer::Disks(disks) => Ok(disks),
                answer => Err(error_in(answer)),
            };
        }
        let mut disks = self.xen_disk_record.disks_of(volume);
        disks.retain(|known| self.xen_disk(known.disk.number) == Some(known.disk));
        Ok(disks)
    }

    /// Records that a disk without a serial is taken for a volume.
    pub(crate) fn remember(&self, known: &KnownDisk) -> Result<Remembered, DeviceError> {
        if let Some(opener) = &self.opener {
            return match opener.ask(&Request::Remember(known.clone()))? {
                Answer::Remembered(remembered) => Ok(remembered),
                answer => Err(error_in(answer)),
            };
        }
        let volume = known.volume.as_ref().ok_or(Errno::INVAL)?;
        Ok(self.xen_disk_record.add(known.disk, volume)?)
    }

    /// Holds a disk that is known already, or a partition of it.
    pub fn open_known(
        &self,
        disk: XenDisk,
        partition: Option<NonZeroU32>,
        access: Access,
    ) -> Result<Device, DeviceError> {
        if let Some(opener) = &self.opener {
            return opener.open_named(&Request::OpenKnown(KnownRequest {
                disk,
                partition,
                access,
            }));
        }
        if self.xen_disk(disk.number) != Some(disk) {
            return Err(DeviceError::Absent);
        }
        let words =
            self.read_sysfs(&format!("{}/uevent", Self::directory_of_number(disk.number)))?;
        let name =
            words.lines().find_map(|line| line.strip_prefix("DEVNAME=")).ok_or(Errno::ILSEQ)?;
        let device = self.open_disk(name, disk.number, partition, access, Proof::Name)?;
        if device.sequence() == disk.sequence { Ok(device) } else { Err(DeviceError::Absent) }
    }

    /// Returns the device numbers of a disk and of its partitions.
    pub fn numbers_of(&self, disk: XenDisk) -> Result<Vec<DeviceNumber>, Errno> {
        let directory = Self::directory_of_number(disk.number);
        let mut numbers = vec![disk.number];
        for name in self.list_directory(&directory)? {
            let part = format!("{directory}/{name}");
            if self.start_beneath(&part).is_some() {
                numbers.push(self.number_beneath(&part)?);
            }
        }
        Ok(numbers)
    }

    /// Finds the disk at the name that EC2 was told, where that disk has no serial.
    pub(super) fn find_named(
        &self,
        requested: &Disk,
        access: Access,
    ) -> Result<Device, DeviceError> {
        let partition = requested.partition;
        let Some(name) = requested.device_hint.clone() else {
            return Err(DeviceError::Absent);
        };
        let request = NameRequest { name, partition, access };
        match &self.opener {
            Some(opener) => opener.open_named(&Request::FindNamed(request)),
            None => self.open_named(&request),
        }
    }

    /// Does the same as [`DiskRoots::find_named`] in this process.
    pub(crate) fn open_named(&self, request: &NameRequest) -> Result<Device, DeviceError> {
        let Some(name) = self.find_kernel_name(&request.name)? else {
            return Err(DeviceError::Absent);
        };
        if !self.accepts_names {
            return Err(DeviceError::WithoutSerial);
        }
        // The kernel lists a disk a moment before its node exists.
        match self.number_of(&name) {
            Ok(number) if self.is_node_of(&name, number) => {
                self.open_disk(&name, number, request.partition, request.access, Proof::Name)
            }
            _ => Err(DeviceError::Absent),
        }
    }

    /// Returns the kernel name of such a disk: the name that EC2 was told, or the `xvd` name that
    /// the kernel uses in place of an `sd` name.
    fn find_kernel_name(&self, told: &DeviceName) -> Result<Option<String>, DeviceError> {
        let name = told.file_name();
        let own = name.strip_prefix("sd").map(|rest| format!("xvd{rest}"));
        let mut names = [Some(name.to_owned()), own]
            .into_iter()
            .flatten()
            .filter(|name| self.is_xen_without_serial(&format!("block/{name}")));
        match (names.next(), names.next()) {
            (found, None) => Ok(found),
            (_, Some(_)) => Err(DeviceError::Ambiguous),
        }
    }

    /// Returns whether the directory describes a whole disk of Xen without a serial.
    fn is_xen_without_serial(&self, directory: &str) -> bool {
        let read = |attribute| self.read_sysfs(&format!("{directory}/{attribute}"));
        read("device/modalias").is_ok_and(|text| text == XEN_DISK)
            && SERIALS.iter().all(|attribute| match read(attribute) {
                Ok(text) => text.trim().is_empty(),
                Err(errno) => errno == Errno::NOENT,
            })
    }

    fn is_xen(&self, name: &str) -> bool {
        self.read_sysfs(&format!("block/{name}/device/modalias")).is_ok_and(|text| text == XEN_DISK)
    }
}
