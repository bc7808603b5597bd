//! Opening a disk that was found: in this process, or through the opener, which has the right to.
use super::DiskRoots;
use crate::disk::device::opener_requests::OpenRequest;
use crate::disk::device::{Access, Device, DeviceError, Proof, errno};
use crate::path_resolution;
use crate::sys;
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_wire::Node;
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;
use std::num::NonZeroU32;

impl DiskRoots {
    /// Opens and holds the disk of this kernel name and number, or a partition of it.
    pub(super) fn open_disk(
        &self,
        disk: &str,
        whole: DeviceNumber,
        partition: Option<NonZeroU32>,
        access: Access,
        proof: Proof,
    ) -> Result<Device, DeviceError> {
        // The kernel lists a partition and makes its node a moment after the disk's.
        if partition.is_some() {
            let (name, directory) = name_and_directory(disk, partition);
            match self.number_beneath(&directory) {
                Ok(number) if self.is_node_of(&name, number) => {}
                _ => return Err(DeviceError::Absent),
            }
        }
        let opened = self.open_by_request(&OpenRequest {
            disk: disk.to_owned(),
            partition,
            proof,
            access,
            exclusive: false,
            direct: false,
        });
        match opened {
            Ok(device) if device.whole == whole => Ok(device),
            Ok(_) => Err(DeviceError::Mismatch),
            // The disk left between the listing and the open, which counts as if it had been absent
            // at the listing.
            Err(DeviceError::Os(Errno::NOENT | Errno::NXIO | Errno::NODEV)) => {
                Err(DeviceError::Absent)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a disk through the opener, or here when there is no opener, and holds it.
    pub(in crate::disk::device) fn open_by_request(
        &self,
        request: &OpenRequest,
    ) -> Result<Device, DeviceError> {
        match &self.opener {
            Some(opener) => opener.send_request(request),
            None => self.open_in_this_process(request),
        }
    }

    /// Opens a disk in this process, and checks before and after the open that it is the requested
    /// one.
    pub(crate) fn open_in_this_process(
        &self,
        request: &OpenRequest,
    ) -> Result<Device, DeviceError> {
        let (name, directory) = name_and_directory(&request.disk, request.partition);
        let number = self.number_beneath(&directory)?;
        if !self.matches_proof(&request.disk, &request.proof) || !self.is_node_of(&name, number) {
            return Err(DeviceError::Mismatch);
        }
        let mut flags = match request.access {
            Access::ReadWrite => OFlags::RDWR,
            Access::ReadOnly => OFlags::RDONLY,
        };
        flags.set(OFlags::EXCL, request.exclusive);
        flags.set(OFlags::DIRECT, request.direct);
        let fd = self.open_node(&name, flags)?;
        let device = Device {
            bytes: sys::block_bytes(&fd).map_err(errno)?,
            sequence: sys::disk_sequence(&fd).map_err(errno)?,
            whole_bytes: self.size_beneath(&format!("block/{}", request.disk))?,
            start: self.start_beneath(&directory),
            fd,
            number,
            whole: match request.partition {
                None => number,
                Some(_) => self.number_of(&request.disk)?,
            },
            name,
            disk: request.disk.clone(),
            partition: request.partition,
            proof: request.proof.clone(),
        };
        device.verify(self)?;
        Ok(device)
    }

    /// Returns whether the disk of this kernel name still has the property by which it was found.
    pub(in crate::disk::device) fn matches_proof(&self, disk: &str, proof: &Proof) -> bool {
        match proof {
            Proof::Serial(serial) => {
                self.class.is_disk(disk) && self.serial(disk).as_ref() == Some(serial)
            }
            Proof::Name => {
                self.accepts_names && self.is_xen_without_serial(&format!("block/{disk}"))
            }
        }
    }

    /// Opens a node by its name. When access to the node is denied, the error has the node's owner
    /// and mode.
    fn open_node(&self, name: &str, flags: OFlags) -> Result<OwnedFd, DeviceError> {
        let opened = path_resolution::open(&self.devices, name, flags);
        let Err(errno @ (Errno::ACCESS | Errno::PERM)) = opened else {
            return Ok(opened?);
        };
        let facts = path_resolution::hold(&self.devices, name).and_then(fstat);
        Err(facts.map_or(DeviceError::Os(errno), |facts| {
            DeviceError::Closed(Node {
                uid: facts.st_uid,
                gid: facts.st_gid,
                mode: facts.st_mode & 0o7777,
            })
        }))
    }
}

/// Returns the kernel name of a disk or a partition of it, and its directory in sysfs.
fn name_and_directory(disk: &str, partition: Option<NonZeroU32>) -> (String, String) {
    let Some(partition) = partition else {
        return (disk.to_owned(), format!("block/{disk}"));
    };
    let digit = disk.ends_with(|last: char| last.is_ascii_digit());
    let name = format!("{disk}{}{partition}", if digit { "p" } else { "" });
    let directory = format!("block/{disk}/{name}");
    (name, directory)
}
