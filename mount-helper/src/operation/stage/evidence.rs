//! Whether an interrupted format of the volume explains everything on a disk: the format is made
//! again in memory and compared with the disk.
use super::{FoundDisk, filesystem_tools, now, with_direct_reads};
use crate::disk::content::reference::{self as ext_reference, ComparisonResult};
use crate::disk::content::xfs_reference;
use crate::disk::device::Claim;
use crate::disk::format_comparison::{self, Compared};
use crate::outcome::{Result, Stop};
use ebs_csi_policy::facts::{Content, Evidence};
use ebs_csi_wire::{Failed, FsType, Refusal, Step, ToolEnd};
use rustix::fd::OwnedFd;
use std::time::{Duration, Instant};

pub(super) fn collect(found: &FoundDisk<'_>, content: &Content, claim: &Claim) -> Result<Evidence> {
    let (context, request, device) = (found.context, &found.request, found.device());
    let known = found.remembered_evidence();
    let uuid = known.uuid;
    let unfinished = |unfinished| Evidence { unfinished, ..known };
    let marked = found.is_marked_unfinished(content);
    let bytes = device.bytes();
    let largest = match request.fs {
        FsType::Ext3 | FsType::Ext4 => ext_reference::LARGEST,
        FsType::Xfs => xfs_reference::LARGEST,
    };
    if bytes > largest {
        // The disk is too large for the format to be made again in memory. For XFS, the "in
        // progress" mark together with the identifier is accepted instead.
        return Ok(unfinished(marked && request.fs == FsType::Xfs));
    }
    let compared =
        Compared { content: content.clone(), uuid, fs: request.fs, format: found.format };
    if let Some(witness) = context.comparisons.find_difference(device, &compared) {
        // The remembered difference counts while its piece is still on the disk. Whoever erased the
        // piece may have erased everything that was not the format's, so the comparison runs again.
        let unchanged =
            witness.map(|witness| with_direct_reads(claim, || witness.is_unchanged(claim)));
        if unchanged.transpose()?.unwrap_or(true) {
            return Ok(known);
        }
    }
    let Some(_alone) = context.comparisons.begin() else {
        return Err(Refusal::Busy.into());
    };
    let reference =
        Reference { found, claim, bytes, end: Instant::now() + format_comparison::TIME };
    let verdict = match request.fs {
        FsType::Ext3 | FsType::Ext4 => reference.explains_ext()?,
        FsType::Xfs => reference.explains_xfs()?,
    };
    if let ComparisonResult::Unexplained(witness) = verdict {
        context.comparisons.remember_difference(device, compared, witness);
    }
    Ok(unfinished(match verdict {
        ComparisonResult::Explained => true,
        ComparisonResult::Unexplained(_) => false,
        ComparisonResult::Incomparable => marked,
    }))
}

/// The format that the request would make on its disk, made again in memory.
struct Reference<'r> {
    found: &'r FoundDisk<'r>,
    claim: &'r Claim,
    bytes: u64,
    end: Instant,
}

impl Reference<'_> {
    /// Makes the format in memory. Returns None when the tool makes none on such a disk, and so
    /// never began one there, or none within the bounds of a comparison.
    fn make_in_memory(&self, time: u64) -> Result<Option<OwnedFd>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left < Duration::from_secs(1) {
            return Ok(None);
        }
        match filesystem_tools::format_in_memory(self.found, self.bytes, time, left) {
            Ok(memory) => Ok(Some(memory)),
            Err(Stop::Failed(Failed { tool: Some(ToolEnd::Exited(_)), .. })) => Ok(None),
            Err(Stop::Failed(failed)) if failed.step == Step::ToolDeadline => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    fn explains_xfs(&self) -> Result<ComparisonResult> {
        let Some(memory) = self.make_in_memory(now())? else {
            return Ok(ComparisonResult::Unexplained(None));
        };
        with_direct_reads(self.claim, || xfs_reference::explains(self.claim, &memory, self.bytes))
    }

    /// Returns whether an ext format of this volume wrote everything on the disk.
    fn explains_ext(&self) -> Result<ComparisonResult> {
        let time = now();
        let explained = |memory: &OwnedFd| {
            with_direct_reads(self.claim, || {
                ext_reference::explains(self.claim, memory, self.bytes)
            })
        };
        let times = {
            let Some(memory) = self.make_in_memory(time)? else {
                return Ok(ComparisonResult::Unexplained(None));
            };
            let times = with_direct_reads(self.claim, || {
                ext_reference::times(self.claim, &memory, self.bytes, time)
            })?;
            if times.is_empty() {
                return explained(&memory);
            }
            times
        };
        // The first time is the most likely one.
        let mut first = None;
        for time in times {
            let Some(memory) = self.make_in_memory(time)? else {
                break;
            };
            match explained(&memory)? {
                ComparisonResult::Unexplained(witness) => first = first.or(witness),
                verdict => return Ok(verdict),
            }
        }
        Ok(ComparisonResult::Unexplained(first))
    }
}
