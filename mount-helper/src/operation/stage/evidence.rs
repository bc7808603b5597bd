//! Whether an interrupted format of the volume explains everything on a disk: the format is made
//! again in memory and compared with the disk.
use super::{FoundDisk, filesystem_tools, now};
use crate::disk::device::Claim;
use crate::disk::device::opener_messages::{Comparison, ComparisonResult, Times};
use crate::disk::format_comparison::{self, Compared};
use crate::outcome::{At, Result, Stop};
use ebs_csi_policy::facts::{Content, Evidence};
use ebs_csi_wire::{Failed, FsType, Refusal, Step, ToolEnd};
use std::time::{Duration, Instant};

/// Size of the largest disk whose ext format is made again in memory, in bytes: its metadata takes
/// about 60 MiB.
const LARGEST_EXT: u64 = 4 << 40;
/// Size of the largest disk whose XFS is made again in memory, in bytes: up to this size the log,
/// which is filled with zeros, takes 128 MiB.
const LARGEST_XFS: u64 = 256 << 30;

pub(super) fn collect(found: &FoundDisk<'_>, content: &Content, claim: &Claim) -> Result<Evidence> {
    let (context, request, device) = (found.context, &found.request, found.device());
    let known = found.remembered_evidence();
    let uuid = known.uuid;
    let unfinished = |unfinished| Evidence { unfinished, ..known };
    let marked = found.is_marked_unfinished(content);
    let bytes = device.bytes();
    let largest = match request.fs {
        FsType::Ext3 | FsType::Ext4 => LARGEST_EXT,
        FsType::Xfs => LARGEST_XFS,
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
        let unchanged = witness.map(|witness| context.disks.is_unchanged(claim, witness));
        if unchanged.transpose().at(Step::ReadDevice)?.unwrap_or(true) {
            return Ok(known);
        }
    }
    let Some(_alone) = context.comparisons.begin() else {
        return Err(Refusal::Busy.into());
    };
    let reference =
        Reference { found, claim, bytes, end: Instant::now() + format_comparison::TIME };
    let verdict = match request.fs {
        FsType::Ext3 | FsType::Ext4 => reference.explains_ext(),
        FsType::Xfs => reference.explains_xfs(),
    };
    // The memory is given back also after an error.
    let given_back = context.disks.memory(0);
    let verdict = verdict?;
    given_back.at(Step::Format)?;
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
    /// Makes the format in memory. Returns false when the tool makes none on such a disk, and so
    /// never began one there, or none within the bounds of a comparison.
    fn make_in_memory(&self, time: u64) -> Result<bool> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left < Duration::from_secs(1) {
            return Ok(false);
        }
        match filesystem_tools::format_in_memory(self.found, self.bytes, time, left) {
            Ok(()) => Ok(true),
            Err(Stop::Failed(Failed { tool: Some(ToolEnd::Exited(_)), .. })) => Ok(false),
            Err(Stop::Failed(failed)) if failed.step == Step::ToolDeadline => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    fn compare(&self) -> Result<ComparisonResult> {
        let comparison = Comparison { fs: self.found.request.fs, bytes: self.bytes };
        self.found.context.disks.compare(self.claim, comparison).at(Step::ReadDevice)
    }

    fn explains_xfs(&self) -> Result<ComparisonResult> {
        if self.make_in_memory(now())? {
            self.compare()
        } else {
            Ok(ComparisonResult::Unexplained(None))
        }
    }

    /// Returns whether an ext format of this volume wrote everything on the disk.
    fn explains_ext(&self) -> Result<ComparisonResult> {
        let time = now();
        if !self.make_in_memory(time)? {
            return Ok(ComparisonResult::Unexplained(None));
        }
        let made = Times { bytes: self.bytes, time };
        let times = self.found.context.disks.times(self.claim, made).at(Step::ReadDevice)?;
        if times.is_empty() {
            return self.compare();
        }
        // The first time is the most likely one.
        let mut first = None;
        for time in times {
            if !self.make_in_memory(time)? {
                break;
            }
            match self.compare()? {
                ComparisonResult::Unexplained(witness) => first = first.or(witness),
                verdict => return Ok(verdict),
            }
        }
        Ok(ComparisonResult::Unexplained(first))
    }
}
