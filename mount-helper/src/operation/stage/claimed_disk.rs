//! The claim of the disk during a stage, and looks at the disk's content through it.
use crate::disk::content;
use crate::disk::device::{Access, Claim, Device, DeviceError};
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done};
use ebs_csi_policy::facts::Content;
use ebs_csi_wire::{Refusal, Stage, Step};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Claims the disk for this process alone, with the access that the request needs.
pub(super) fn claim(context: &OperationContext, device: &Device, asked: &Stage) -> Done<Claim> {
    let access = if asked.read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    match device.claim(&context.disks, access) {
        Err(DeviceError::Os(Errno::BUSY)) => Err(Refusal::StillHeld.into()),
        other => other.at(Step::ClaimDevice),
    }
}

/// Recognises the content of the disk.
pub(super) fn look(claim: &Claim) -> Done<Content> {
    directly(claim, || content::look(claim, now()))
}

/// Returns the current time, in seconds since 1970.
pub(super) fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Sets O_DIRECT for the duration of `read`, so that the reads see the disk and not the page cache.
/// The flag is cleared afterwards, because tools read at offsets that direct reads refuse.
pub(super) fn directly<T>(claim: &Claim, read: impl FnOnce() -> Result<T, Errno>) -> Done<T> {
    let flags = fcntl_getfl(claim).at(Step::ReadDevice)?;
    fcntl_setfl(claim, flags | OFlags::DIRECT).at(Step::ReadDevice)?;
    let result = read();
    fcntl_setfl(claim, flags - OFlags::DIRECT).at(Step::ReadDevice)?;
    result.at(Step::ReadDevice)
}
