//! Waiting for a disk, finding it, and opening it: in this process, or through the opener, which
//! may open disks.
use super::DiskRoots;
use crate::disk::device::opener_messages::OpenRequest;
use crate::disk::device::{Access, Device, DeviceError, OpenedDisk, Proof, errno};
use crate::{path_resolution, sys};
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_wire::{Disk, Node};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

impl DiskRoots {
    /// Waits for the disk that a request names: by its serial, or, where it has none, by the name
    /// that EC2 was told. A disk that is refused because it has no serial is distinguished from an
    /// absent one, because waiting does not help.
    pub fn find_requested(
        &self,
        requested: &Disk,
        access: Access,
        timeout: Duration,
    ) -> Result<Device, DeviceError> {
        let serial = requested.volume.serial();
        self.wait_for(timeout, || match self.find_now(&serial, requested.partition, access) {
            Err(DeviceError::Absent) => self.find_named(requested, access),
            other => other,
        })
    }

    /// Waits until the disk with this serial is there, at most `timeout`, and holds the disk or a
    /// partition of it.
    pub fn find_part(
        &self,
        serial: &str,
        partition: Option<NonZeroU32>,
        access: Access,
        timeout: Duration,
    ) -> Result<Device, DeviceError> {
        self.wait_for(timeout, || self.find_now(serial, partition, access))
    }

    fn wait_for(
        &self,
        timeout: Duration,
        look: impl Fn() -> Result<Device, DeviceError>,
    ) -> Result<Device, DeviceError> {
        let end = Instant::now() + timeout;
        // The first look sees every disk that has arrived until now.
        if !timeout.is_zero() {
            self.arrivals.discard();
        }
        loop {
            let found = look();
            let left = end.saturating_duration_since(Instant::now());
            match found {
                // A new node belongs to root alone until udev gives it to its group.
                Err(DeviceError::Absent | DeviceError::Closed(_)) if !left.is_zero() => {
                    self.arrivals.wait(left);
                }
                other => return other,
            }
        }
    }

    fn find_now(
        &self,
        serial: &str,
        partition: Option<NonZeroU32>,
        access: Access,
    ) -> Result<Device, DeviceError> {
        let mut found = None;
        for name in self.names()? {
            if self.serial(&name).as_deref() != Some(serial) {
                continue;
            }
            // The kernel may list a disk before its node exists, and simulated nodes share one
            // kernel and its list of disks: only a disk with a device node here counts.
            let Ok(number) = self.number_of(&name) else {
                continue;
            };
            if !self.is_node_of(&name, number) {
                continue;
            }
            if found.replace((name, number)).is_some() {
                return Err(DeviceError::Ambiguous);
            }
        }
        let Some((disk, number)) = found else {
            return Err(DeviceError::Absent);
        };
        let proof = Proof::Serial(serial.to_owned());
        self.open_disk(&disk, number, partition, access, proof)
    }

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
            Ok(device) if device.whole() == whole => Ok(device),
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
            Some(opener) => opener.open(request),
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
        let opened = OpenedDisk {
            bytes: sys::block_bytes(&fd).map_err(errno)?,
            sequence: sys::disk_sequence(&fd).map_err(errno)?,
            whole_bytes: self.size_beneath(&format!("block/{}", request.disk))?,
            start: self.start_beneath(&directory),
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
        let device = Device { fd, opened };
        device.verify(self)?;
        Ok(device)
    }

    /// Returns whether the disk of this kernel name still has the property by which it was found.
    pub(in crate::disk::device) fn matches_proof(&self, disk: &str, proof: &Proof) -> bool {
        match proof {
            Proof::Serial(serial) => {
                self.class.is_disk(disk) && self.serial(disk).as_ref() == Some(serial)
            }
            Proof::Name => self.number_of(disk).is_ok_and(|number| self.xen_disk(number).is_some()),
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

/// Longest wait before the disk is looked for again. A notification can be missing because another
/// waiter consumed it or because the kernel gives none.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A watch on the directory of device nodes, which all waiters share, so that a disk that appears
/// late is found at once. A notification only wakes the waiting thread. It carries no facts; each
/// time, the thread looks for the disk anew.
#[derive(Debug)]
pub(super) struct Arrivals(Option<OwnedFd>);

impl Arrivals {
    /// Watches a directory. When the machine has no watch left, waiting takes longer but works.
    pub(super) fn of(directory: &str) -> Self {
        let watch = || {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            // A node is created first and given to its group afterwards.
            let events = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ATTRIB;
            inotify::add_watch(&watch, directory, events)?;
            Ok::<_, Errno>(watch)
        };
        Self(watch().ok())
    }

    /// Discards the notifications that have arrived until now.
    fn discard(&self) {
        let Some(watch) = &self.0 else { return };
        let mut buffer = [0; 4096];
        while rustix::io::read(watch, &mut buffer).is_ok_and(|length| length > 0) {}
    }

    /// Waits for a notification, for [`RETRY_INTERVAL`] or for `timeout`, whichever ends first.
    fn wait(&self, timeout: Duration) {
        let timeout = timeout.min(RETRY_INTERVAL);
        let Some(watch) = &self.0 else {
            return std::thread::sleep(timeout);
        };
        let timespec = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&timespec)) {
            Ok(0) => {}
            Ok(_) => self.discard(),
            Err(_) => std::thread::sleep(timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn has_notification(arrivals: &Arrivals) -> bool {
        let watch = arrivals.0.as_ref().expect("a watch");
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&now)).expect("poll") > 0
    }

    /// A node is created first and gets its group later; each of the two changes wakes a waiter.
    #[test]
    fn device_node_creation_and_chmod_notify_once() {
        let directory = tempfile::tempdir().expect("tempdir");
        let arrivals = Arrivals::of(directory.path().to_str().expect("utf-8"));
        assert!(!has_notification(&arrivals));
        let node = directory.path().join("nvme1n1");
        fs::write(&node, "").expect("write");
        assert!(has_notification(&arrivals));
        arrivals.wait(RETRY_INTERVAL);
        assert!(!has_notification(&arrivals));
        fs::set_permissions(&node, fs::Permissions::from_mode(0o660)).expect("chmod");
        assert!(has_notification(&arrivals));
        arrivals.discard();
        assert!(!has_notification(&arrivals));
        // The removal of a node is no arrival.
        fs::remove_file(&node).expect("remove");
        arrivals.discard();
        arrivals.wait(Duration::from_millis(1));
    }

    #[test]
    fn wait_without_watch_still_returns() {
        let arrivals = Arrivals::of("/no/such/directory");
        assert!(arrivals.0.is_none());
        arrivals.discard();
        arrivals.wait(Duration::from_millis(1));
    }
}
