//! Reads disks for the broker, in the opener: a process that parses what somebody wrote to a disk
//! can neither mount nor write.
use crate::disk::area_search::Readers;
use crate::disk::content::reference as ext_reference;
use crate::disk::content::{self, xfs_reference};
use crate::disk::device::opener_messages::{Answer, Comparison, ReadRequest, Times, Witness};
use crate::path_resolution;
use ebs_csi_confine::ThreadStarts;
use ebs_csi_wire::FsType;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, ftruncate};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use std::io;
use std::sync::Arc;

/// Largest amount of memory that one format may use, in bytes. A format with the usual options uses
/// 57 MiB for a disk of 4 TiB (ext4), 146 MiB for 2 TiB (ext3), and 129 MiB for 256 GiB (XFS, whose
/// log is written with zeros).
const MEMORY: u64 = 160 << 20;

/// Makes a file on a tmpfs of its own, which is mounted nowhere and is full when it holds
/// [`MEMORY`] bytes. A file of memfd_create(2) has no such bound, and its memory is charged to the
/// process that writes it first.
pub(crate) fn memory() -> Result<OwnedFd, Errno> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "size", MEMORY.to_string())?;
    fsconfig_set_string(context.as_fd(), "nr_inodes", "4")?;
    fsconfig_set_string(context.as_fd(), "mode", "0700")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    // The file has no name, and O_EXCL prevents that it gets one (open(2)).
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL;
    path_resolution::open(&mount, ".", flags)
}

/// What the opener's threads read disks with.
pub(crate) struct DiskReader {
    readers: Readers,
    /// The file in which formats are made again, one at a time.
    memory: OwnedFd,
}

impl DiskReader {
    pub(crate) fn start(memory: OwnedFd, starts: &ThreadStarts) -> io::Result<Self> {
        Ok(Self { readers: Readers::start(starts)?, memory })
    }

    /// Answers a request to read, with a descriptor perhaps. When this function returns, no thread
    /// has a descriptor of the disk. Calls `seems_blank` when nothing is recognised in the first
    /// bytes, and the rest is read to recognise the content.
    pub(crate) fn answer(
        &self,
        request: ReadRequest,
        disk: Option<OwnedFd>,
        seems_blank: impl FnOnce(),
    ) -> Result<(Answer, Option<OwnedFd>), Errno> {
        if let ReadRequest::Memory { bytes } = request {
            // The first of the two gives back the memory of an earlier format.
            ftruncate(&self.memory, 0)?;
            ftruncate(&self.memory, bytes)?;
            return Ok((Answer::Memory, Some(self.memory.try_clone().map_err(|_| Errno::MFILE)?)));
        }
        let disk = Arc::new(disk.ok_or(Errno::BADF)?);
        let answer = match request {
            ReadRequest::First => Answer::First(content::first_facts(&disk)?),
            ReadRequest::Recognise { now } => directly(&disk, || {
                let search = |size, within| self.readers.search(&disk, size, &within);
                content::recognise_disk(&disk, now, seems_blank, search).map(Answer::Content)
            })?,
            ReadRequest::Times(Times { bytes, time }) => directly(&disk, || {
                ext_reference::times(&disk, &self.memory, bytes, time).map(Answer::Times)
            })?,
            ReadRequest::Compare(Comparison { fs, bytes }) => directly(&disk, || {
                let explains = match fs {
                    FsType::Ext3 | FsType::Ext4 => ext_reference::explains,
                    FsType::Xfs => xfs_reference::explains,
                };
                explains(&disk, &self.memory, bytes).map(Answer::Compared)
            })?,
            ReadRequest::IsUnchanged(witness) => {
                directly(&disk, || Witness::is_unchanged(&witness, &disk).map(Answer::IsUnchanged))?
            }
            ReadRequest::Memory { .. } => return Err(Errno::INVAL),
        };
        Ok((answer, None))
    }
}

/// Sets O_DIRECT for the duration of `read`, so that the reads see the disk and not the page cache.
/// The flag is cleared afterwards, because tools, which get the broker's descriptor of the same
/// open, read at offsets that direct reads refuse.
fn directly<T>(disk: impl AsFd, read: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let flags = fcntl_getfl(&disk)?;
    fcntl_setfl(&disk, flags | OFlags::DIRECT)?;
    let result = read();
    fcntl_setfl(&disk, flags)?;
    result
}
