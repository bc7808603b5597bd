//! What is on a disk, read by the opener: this process maps no byte of a disk.
use super::DiskRoots;
use crate::disk::device::DeviceError;
use crate::disk::device::opener_messages::{
    Answer, Comparison, ComparisonResult, FirstFacts, ReadRequest, Times, Witness,
};
use crate::disk::device::opener_requests::error_in;
use ebs_csi_policy::facts::Content;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

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
        let opener = self.opener.as_ref().ok_or(Errno::NOSYS)?;
        opener.recognise(disk.as_fd(), now, seems_blank, meanwhile)
    }

    /// Has the first bytes of a disk read, through the page cache unless the descriptor is one for
    /// direct reads.
    pub(crate) fn first_facts(&self, disk: impl AsFd) -> Result<FirstFacts, DeviceError> {
        match self.read(ReadRequest::First, Some(&disk))? {
            (Answer::First(facts), _) => Ok(facts),
            (answer, _) => Err(error_in(answer)),
        }
    }

    /// Returns an empty file in memory of so many bytes; there is one such file.
    pub(crate) fn memory(&self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        match self.read(ReadRequest::Memory { bytes }, None::<OwnedFd>)? {
            (Answer::Memory, Some(memory)) => Ok(memory),
            (answer, _) => Err(error_in(answer)),
        }
    }

    /// Returns the times that a claimed disk has where the format in memory has its own.
    pub(crate) fn times(&self, claim: impl AsFd, times: Times) -> Result<Vec<u64>, DeviceError> {
        match self.read(ReadRequest::Times(times), Some(claim))? {
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
        match self.read(ReadRequest::Compare(comparison), Some(claim))? {
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
        match self.read(ReadRequest::IsUnchanged(witness), Some(claim))? {
            (Answer::IsUnchanged(unchanged), _) => Ok(unchanged),
            (answer, _) => Err(error_in(answer)),
        }
    }

    fn read(
        &self,
        request: ReadRequest,
        disk: Option<impl AsFd>,
    ) -> Result<(Answer, Option<OwnedFd>), DeviceError> {
        let opener = self.opener.as_ref().ok_or(Errno::NOSYS)?;
        let disks: Vec<_> = disk.iter().map(AsFd::as_fd).collect();
        opener.read(request, &disks)
    }
}
