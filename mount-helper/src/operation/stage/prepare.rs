//! What happens between finding a disk and mounting it: recognising its content, and running the
//! tool that the content calls for. The claim on the disk is held without a gap from the first read
//! to the end of the tool, which works through the same claim.
use super::claimed_disk::{claim, directly, look, now};
use super::examine::{self, to_replay};
use super::filesystem_tools::{self, Check};
use crate::disk::content::reference::{self as ext_reference, Verdict};
use crate::disk::content::{self, xfs_reference};
use crate::disk::device::{Claim, Device};
use crate::disk::filesystem_identifier;
use crate::disk::format_comparison::{self, Compared};
use crate::fault_point;
use crate::mount::privilege;
use crate::operation::context::OperationContext;
use crate::operation::{grow, xen_disk};
use crate::outcome::{At, Done, Stop, broken};
use crate::tool::runner_requests::WaitingRunner;
use ebs_csi_policy::facts::{Content, DiskFacts, Evidence, ExtFacts};
use ebs_csi_policy::judge::offline_growth;
use ebs_csi_policy::judge::{self, Authorized, Preparation, StageDisk};
use ebs_csi_wire::{Failed, FsType, Origin, Refusal, Refused, Stage, Step, ToolEnd};
use rustix::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What was done to the disk.
#[derive(Debug)]
pub(super) struct Prepared {
    /// What the policy allowed, the mount included.
    pub(super) permit: Authorized<StageDisk>,
    /// Whether a file system was made.
    pub(super) formatted: bool,
    /// Whether a checker ran.
    pub(super) checked: bool,
    /// Whether the checker repaired something.
    pub(super) repaired: bool,
    /// Whether the checker replayed a journal.
    pub(super) replayed: bool,
    /// Whether the file system was grown.
    pub(super) grown: bool,
    /// Whether the file system has to be grown once it is mounted.
    pub(super) grow_mounted: bool,
}

impl Prepared {
    /// Returns a value that says that nothing was done.
    pub(super) fn as_it_is(permit: Authorized<StageDisk>) -> Self {
        Self {
            permit,
            formatted: false,
            checked: false,
            repaired: false,
            replayed: false,
            grown: false,
            grow_mounted: false,
        }
    }
}

/// Recognises the content of the disk and does what the policy allows.
pub(super) fn prepare(
    context: &OperationContext,
    asked: &Stage,
    device: &Device,
    facts: &DiskFacts,
) -> Done<Prepared> {
    let mut claim = claim(context, device, asked)?;
    // A blank disk needs a format. Its runner gets ready while the rest of the disk is read.
    let mut wanted = !asked.read_only && asked.disk.origin == Origin::Blank;
    let mut format: Option<WaitingRunner<'_>> = None;
    let content = directly(&claim, || {
        content::look_and(&claim, now(), || {
            if let Some(waiting) = &mut format {
                waiting.go_on();
            } else if std::mem::take(&mut wanted) {
                format = filesystem_tools::ask_for_format(context, asked, now());
            }
        })
    })?;
    let evidence = evidence(context, asked, device, &content, &claim)?;
    fault_point::reached("stage-looked");
    let permit = judged(context, asked, facts, &content, evidence)?;
    let mut prepared = Prepared::as_it_is(permit);
    xen_disk::remember(context, &asked.disk, device)?;
    let preparation = prepared.permit.act().preparation;
    // The kernel journals what it changes on a mounted file system; resize2fs does not.
    let offline = prepared.permit.act().grow && !privilege::has_resource();
    let full = match &content {
        Content::Ext(facts) if offline => before_growth(facts),
        _ => Check::Full,
    };
    match preparation {
        Preparation::Nothing => {}
        Preparation::Format => {
            context.verify(device)?;
            // The tool flushes its writes before it reports success, and `look` reads from the
            // disk.
            filesystem_tools::format(context, &prepared.permit, asked, &claim, format, now())?;
            made(asked, &look(&claim)?)?;
            fault_point::reached("stage-made");
            context.verify(device)?;
            prepared.formatted = true;
            fault_point::reached("stage-formatted");
        }
        Preparation::Check => {
            context.verify(device)?;
            prepared.repaired =
                filesystem_tools::check(context, &prepared.permit, asked.fs, &claim, Check::Usual)?;
        }
        Preparation::Examine => {
            context.verify(device)?;
            (claim, prepared.repaired) = examine::all_of_it(
                context,
                asked,
                device,
                &prepared.permit,
                &content,
                claim,
                full,
            )?;
        }
    }
    if matches!(preparation, Preparation::Check | Preparation::Examine) {
        prepared.checked = true;
        prepared.replayed = !asked.read_only && to_replay(&content);
        finish(context, device)?;
        fault_point::reached("stage-checked");
        // A check may have replayed a journal that held a newer superblock.
        let evidence = Evidence {
            examined: preparation == Preparation::Examine || evidence.examined,
            ..evidence
        };
        prepared.permit = judged(context, asked, facts, &look(&claim)?, evidence)?;
    }
    if prepared.permit.act().grow && privilege::has_resource() {
        prepared.grow_mounted = true;
    } else if prepared.permit.act().grow {
        let checked = preparation == Preparation::Examine && full != Check::Full;
        let offline = grow_claimed(context, asked, device, &prepared.permit, &claim, checked)?;
        prepared.repaired |= offline.repaired;
        prepared.checked = true;
        prepared.grown = offline.grown;
    }
    if preparation == Preparation::Examine {
        context.examined_disks.add(device);
    }
    Ok(prepared)
}

/// The result of growing an ext file system by resize2fs.
pub(super) struct Offline {
    /// Whether a check repaired something.
    pub(super) repaired: bool,
    /// Whether the file system is larger now.
    pub(super) grown: bool,
}

/// Grows an ext file system that the kernel could not grow once it was mounted.
pub(super) fn grow_offline(
    context: &OperationContext,
    asked: &Stage,
    device: &Device,
    permit: &Authorized<StageDisk>,
) -> Done<Offline> {
    let claim = claim(context, device, asked)?;
    grow_claimed(context, asked, device, permit, &claim, false)
}

/// Grows the file system on the claimed disk. `checked` says that the full check before it has been
/// done; otherwise it is done here.
fn grow_claimed(
    context: &OperationContext,
    asked: &Stage,
    device: &Device,
    permit: &Authorized<StageDisk>,
    claim: &Claim,
    checked: bool,
) -> Done<Offline> {
    context.verify(device)?;
    let mut repaired = false;
    // resize2fs works only on a file system that was checked in full since its last mount.
    if !checked {
        let Content::Ext(facts) = look(claim)? else {
            return Err(broken(Step::Grow));
        };
        let full = before_growth(&facts);
        repaired = filesystem_tools::check(context, permit, asked.fs, claim, full)?;
        finish(context, device)?;
        fault_point::reached("stage-marked");
    }
    let grown = filesystem_tools::grow_ext(context, permit, claim)?;
    finish(context, device)?;
    if !grown {
        // The file system keeps its size. A full check confirms that it is still sound before
        // anybody uses it.
        grow::not_grown(asked.fs, "resize2fs does not grow it");
        repaired |= filesystem_tools::check(context, permit, asked.fs, claim, Check::Full)?;
        finish(context, device)?;
    }
    fault_point::reached("stage-grown");
    Ok(Offline { repaired, grown })
}

/// Returns the full check that an offline growth needs, which also marks that one begins.
fn before_growth(facts: &ExtFacts) -> Check {
    Check::FullBeforeGrowth(offline_growth::time(facts.uuid, now()))
}

pub(super) fn judged(
    context: &OperationContext,
    asked: &Stage,
    facts: &DiskFacts,
    content: &Content,
    evidence: Evidence,
) -> Done<Authorized<StageDisk>> {
    let images = context.rules.untrusted_images();
    judge::stage_disk(asked, facts, content, evidence, images).map_err(|reason| {
        let seen = content.seen(facts.bytes);
        Refused { reason, seen }.into()
    })
}

/// Collects the evidence of what was done to this disk before, above all of an unfinished format of
/// this volume.
fn evidence(
    context: &OperationContext,
    asked: &Stage,
    device: &Device,
    content: &Content,
    claim: &Claim,
) -> Done<Evidence> {
    let uuid = filesystem_identifier::identifier(&asked.disk.volume);
    let marked = matches!(content, Content::Xfs(facts) if facts.in_progress && facts.uuid == uuid);
    let as_it_is = |unfinished| Evidence {
        uuid,
        unfinished,
        examined: context.examined_disks.has(device),
        used_raw: context.examined_disks.was_used_raw(device),
    };
    // Skips the comparison when it cannot change the decision.
    let could_be = (marked || matches!(content, Content::Unknown { .. } | Content::Damaged(_)))
        && !asked.read_only
        && asked.disk.origin != Origin::Copy;
    let bytes = device.bytes();
    let largest = match asked.fs {
        FsType::Ext3 | FsType::Ext4 => ext_reference::LARGEST,
        FsType::Xfs => xfs_reference::LARGEST,
    };
    if !could_be {
        return Ok(as_it_is(false));
    }
    if bytes > largest {
        // The disk is too large for the format to be made again in memory. For XFS, the "in
        // progress" mark together with the identifier is accepted instead.
        return Ok(as_it_is(marked && asked.fs == FsType::Xfs));
    }
    let compared = Compared {
        content: content.clone(),
        uuid,
        fs: asked.fs,
        format: asked.format,
    };
    if let Some(witness) = context.comparisons.known(device, &compared) {
        // The remembered difference counts while its piece is still on the disk. Whoever erased the
        // piece may have erased everything that was not the format's, so the comparison runs again.
        let stands = witness.map(|witness| directly(claim, || witness.stands(claim)));
        if stands.transpose()?.unwrap_or(true) {
            return Ok(as_it_is(false));
        }
    }
    let Some(_alone) = context.comparisons.begin() else {
        return Err(Refusal::Busy.into());
    };
    let reference = Reference {
        context,
        asked,
        claim,
        bytes,
        end: Instant::now() + format_comparison::TIME,
    };
    let verdict = match asked.fs {
        FsType::Ext3 | FsType::Ext4 => reference.explains_ext()?,
        FsType::Xfs => reference.explains_xfs()?,
    };
    if let Verdict::Strange(witness) = verdict {
        context.comparisons.found_strange(device, compared, witness);
    }
    Ok(as_it_is(match verdict {
        Verdict::Explained => true,
        Verdict::Strange(_) => false,
        Verdict::Incomparable => marked,
    }))
}

/// The format that the request would make on its disk, made again in memory.
struct Reference<'r> {
    context: &'r OperationContext,
    asked: &'r Stage,
    claim: &'r Claim,
    bytes: u64,
    /// When the time for the comparison ends.
    end: Instant,
}

impl Reference<'_> {
    /// Makes the format in memory. Returns None when the tool makes none on such a disk, and so
    /// never began one there, or none within the bounds of a comparison.
    fn made(&self, time: u64) -> Done<Option<OwnedFd>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left < Duration::from_secs(1) {
            return Ok(None);
        }
        match filesystem_tools::reference(self.context, self.asked, self.bytes, time, left) {
            Ok(memory) => Ok(Some(memory)),
            Err(Stop::Failed(Failed {
                tool: Some(ToolEnd::Exited(_)),
                ..
            })) => Ok(None),
            Err(Stop::Failed(failed)) if failed.step == Step::ToolDeadline => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    fn explains_xfs(&self) -> Done<Verdict> {
        let Some(memory) = self.made(now())? else {
            return Ok(Verdict::Strange(None));
        };
        directly(self.claim, || {
            xfs_reference::explains(self.claim, &memory, self.bytes)
        })
    }

    /// Returns whether an ext format of this volume wrote everything on the disk.
    fn explains_ext(&self) -> Done<Verdict> {
        let time = now();
        let explained = |memory: &OwnedFd| {
            directly(self.claim, || {
                ext_reference::explains(self.claim, memory, self.bytes)
            })
        };
        let times = {
            let Some(memory) = self.made(time)? else {
                return Ok(Verdict::Strange(None));
            };
            let times = directly(self.claim, || {
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
            let Some(memory) = self.made(time)? else {
                break;
            };
            match explained(&memory)? {
                Verdict::Strange(witness) => first = first.or(witness),
                verdict => return Ok(verdict),
            }
        }
        Ok(Verdict::Strange(first))
    }
}

/// Flushes what a tool wrote, and checks that the disk is still the volume's.
fn finish(context: &OperationContext, device: &Device) -> Done<()> {
    device.flush().at(Step::Sync)?;
    context.verify(device)
}

/// Checks that a format tool that reported success made what was asked for.
fn made(asked: &Stage, content: &Content) -> Done<()> {
    let right = match content {
        Content::Ext(_) => asked.fs != FsType::Xfs,
        Content::Xfs(facts) => asked.fs == FsType::Xfs && facts.sound && !facts.in_progress,
        _ => false,
    };
    if right {
        Ok(())
    } else {
        Err(broken(Step::Format))
    }
}
