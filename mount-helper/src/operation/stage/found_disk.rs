//! The disk of a stage request: as it was found, and claimed and examined. The content is read
//! through the claim.
use crate::disk::content;
use crate::disk::device::{Access, Claim, Device};
use crate::disk::filesystem_identifier;
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done};
use ebs_csi_policy::facts::{Content, Evidence};
use ebs_csi_policy::format_option::FormatOptions;
use ebs_csi_policy::judge::{self, Authorized, StageDisk};
use ebs_csi_wire::{Refused, Stage, Step};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// A stage request, and the disk that was found and identified for it.
#[derive(Debug)]
pub(super) struct FoundDisk<'s> {
    /// What the operation may use.
    pub(super) context: &'s OperationContext,
    /// The request.
    pub(super) request: &'s Stage,
    /// The checked format options of the request.
    pub(super) format: FormatOptions,
    /// The held disk.
    pub(super) device: &'s Device,
}

impl FoundDisk<'_> {
    /// Claims the disk for this process alone. A read-only request may need write access, too, to
    /// replay a journal.
    pub(super) fn claim(&self) -> Done<Claim> {
        let read_only = self.request.read_only && self.device.facts().read_only;
        self.context
            .claim(self.device, if read_only { Access::ReadOnly } else { Access::ReadWrite })
    }

    /// Checks that the disk is still the one that was found.
    pub(super) fn verify(&self) -> Done<()> {
        self.context.verify(self.device)
    }

    /// Flushes what a tool wrote, and checks that the disk is still the volume's.
    pub(super) fn flush(&self) -> Done<()> {
        self.device.flush().at(Step::Sync)?;
        self.verify()
    }

    /// Returns what this process remembers of the disk. An interrupted format is not part of it:
    /// only the content shows one.
    pub(super) fn remembered_evidence(&self) -> Evidence {
        let examined_disks = &self.context.examined_disks;
        Evidence {
            uuid: filesystem_identifier::identifier(&self.request.disk.volume),
            unfinished: false,
            examined: examined_disks.has(self.device),
            used_raw: examined_disks.was_used_raw(self.device),
        }
    }

    /// Asks the policy what may be done to a disk with this content.
    pub(super) fn judge(
        &self,
        content: &Content,
        evidence: Evidence,
    ) -> Done<Authorized<StageDisk>> {
        let images = self.context.rules.untrusted_images();
        let facts = self.device.facts();
        judge::stage_disk(self.request, &facts, content, evidence, images).map_err(|reason| {
            let seen = content.seen(facts.bytes);
            Refused { reason, seen }.into()
        })
    }
}

/// A claimed disk whose content was recognised, and what the policy allows to do with it.
#[derive(Debug)]
pub(super) struct Examined<'s> {
    /// The request and the disk.
    pub(super) found: &'s FoundDisk<'s>,
    /// The claim, which keeps others from the disk.
    pub(super) claim: Claim,
    /// The content, as it was read last.
    pub(super) content: Content,
    /// What the policy allowed, the mount included.
    pub(super) permit: Authorized<StageDisk>,
}

/// Recognises the content of the disk.
pub(super) fn read_content(claim: &Claim) -> Done<Content> {
    with_direct_reads(claim, || content::read_content(claim, now()))
}

/// Returns the current time, in seconds since 1970.
pub(super) fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Sets O_DIRECT for the duration of `read`, so that the reads see the disk and not the page cache.
/// The flag is cleared afterwards, because tools read at offsets that direct reads refuse.
pub(super) fn with_direct_reads<T>(
    claim: &Claim,
    read: impl FnOnce() -> Result<T, Errno>,
) -> Done<T> {
    let flags = fcntl_getfl(claim).at(Step::ReadDevice)?;
    fcntl_setfl(claim, flags | OFlags::DIRECT).at(Step::ReadDevice)?;
    let result = read();
    fcntl_setfl(claim, flags - OFlags::DIRECT).at(Step::ReadDevice)?;
    result.at(Step::ReadDevice)
}
