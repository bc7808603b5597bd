//! Between finding a disk and mounting it: the look, and the tool that the look calls for. The claim on the disk is
//! held without a gap from the look to the end of the tool, which works through this very claim.
use crate::content;
use crate::device::{Access, Device, DeviceError};
use crate::fault_point;
use crate::outcome::{At, Done, broken, failed};
use crate::tools;
use crate::world::World;
use ebs_csi_policy::facts::{Content, DiskFacts};
use ebs_csi_policy::judge::{self, Authorized, Preparation, StageDisk};
use ebs_csi_wire::{FsType, Refusal, Stage, Step};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// What was done to the disk.
#[derive(Debug)]
pub(super) struct Prepared {
    /// What the policy allowed to be done to the disk, the mount included.
    pub(super) permit: Authorized<StageDisk>,
    /// A file system was made.
    pub(super) formatted: bool,
    /// A checker ran.
    pub(super) checked: bool,
    /// It repaired something.
    pub(super) repaired: bool,
    /// The file system was grown.
    pub(super) grown: bool,
}

/// Look at the disk and do what the policy allows.
pub(super) fn prepare(
    world: &World,
    asked: &Stage,
    device: &Device,
    facts: &DiskFacts,
) -> Done<Prepared> {
    let claim = claim(world, device, asked.read_only)?;
    let content = look(&claim)?;
    fault_point::reached("stage-looked");
    let ours = tools::identifier(&asked.disk.volume);
    let permit = judge::stage_disk(asked, facts, &content, ours)?;
    let act = *permit.act();
    let mut prepared = Prepared {
        permit,
        formatted: false,
        checked: false,
        repaired: false,
        grown: false,
    };
    match act.preparation {
        Preparation::Nothing => {}
        Preparation::Format => {
            world.verify(device)?;
            tools::format(world, &prepared.permit, asked, &claim)?;
            finish(world, device)?;
            made(asked, &look(&claim)?)?;
            prepared.formatted = true;
            fault_point::reached("stage-formatted");
        }
        Preparation::Check => {
            world.verify(device)?;
            prepared.repaired = tools::check(world, &prepared.permit, &claim, false)?;
            prepared.checked = true;
            finish(world, device)?;
            fault_point::reached("stage-checked");
        }
    }
    if act.grow_first || needs_growth_after_check(asked, facts, &claim, act, ours)? {
        world.verify(device)?;
        // resize2fs works on a file system that was checked in full.
        prepared.repaired |= tools::check(world, &prepared.permit, &claim, true)?;
        prepared.checked = true;
        tools::grow_ext(world, &prepared.permit, &claim)?;
        finish(world, device)?;
        prepared.grown = true;
        fault_point::reached("stage-grown");
    }
    Ok(prepared)
}

/// A check may have replayed a journal that held a newer superblock: the size is read again behind it.
fn needs_growth_after_check(
    asked: &Stage,
    facts: &DiskFacts,
    claim: &OwnedFd,
    act: StageDisk,
    ours: [u8; 16],
) -> Done<bool> {
    if act.preparation != Preparation::Check {
        return Ok(false);
    }
    let again = judge::stage_disk(asked, facts, &look(claim)?, ours)?.into_act();
    Ok(again.grow_first)
}

fn claim(world: &World, device: &Device, read_only: bool) -> Done<OwnedFd> {
    let access = if read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    match device.claim(&world.disks, access) {
        Err(DeviceError::Os(Errno::BUSY)) => Err(Refusal::StillHeld.into()),
        other => other.at(Step::ClaimDevice),
    }
}

/// Look with direct reads: what counts is what the disk holds, not what memory remembers of it. The claim then loses
/// the flag again, because tools read at places that direct reads refuse.
fn look(claim: &OwnedFd) -> Done<Content> {
    let flags = fcntl_getfl(claim).at(Step::ReadDevice)?;
    fcntl_setfl(claim, flags | OFlags::DIRECT).at(Step::ReadDevice)?;
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let content = content::look(claim, now);
    fcntl_setfl(claim, flags - OFlags::DIRECT).at(Step::ReadDevice)?;
    match content {
        Ok(content) => Ok(content),
        Err(errno) => Err(failed(Step::ReadDevice, errno)),
    }
}

/// What a tool wrote is on the disk, and the disk is still the volume's.
fn finish(world: &World, device: &Device) -> Done<()> {
    device.flush().at(Step::Sync)?;
    world.verify(device)
}

/// A format tool that reports success must have left what was asked for.
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
