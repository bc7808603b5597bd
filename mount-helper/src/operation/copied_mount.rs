//! A file system that stays alive in another mount namespace after its mounts here are gone. A
//! container that mounts `/` of the node without mount propagation has a copy of every mount that
//! existed when the container started. The copies disappear with the directory on which they stand,
//! but an open file or a working directory on a copy keeps the file system alive.
//!
//! The kernel has one superblock for all mounts of a disk. A further mount of the disk joins this
//! superblock, and through the new mount the file system is made read-only for all mounts: nothing
//! is left to be written, and nothing can be written later.
use super::prepare;
use crate::content;
use crate::device::Device;
use crate::journal;
use crate::mounts::{self, Detached, Joined};
use crate::outcome::{At, Done, Stop};
use crate::world::World;
use ebs_csi_policy::facts::{DiskFacts, Evidence};
use ebs_csi_policy::judge::{Authorized, Preparation, StageDisk, Withdraw};
use ebs_csi_wire::{FsType, Refusal, Refused, Seen, Stage, Step, VolumeId};
use rustix::io::Errno;

/// What to do about a file system that another mount namespace keeps alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CopiedMounts {
    /// Release the volume once the file system is read-only for all mounts.
    #[default]
    Release,
    /// Hold the volume until nothing keeps the file system alive.
    Refuse,
}

impl CopiedMounts {
    /// Returns the value's name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Refuse => "refuse",
        }
    }

    /// Parses the name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Release, Self::Refuse]
            .into_iter()
            .find(|one| one.as_str() == name)
    }
}

/// Makes the file system read-only for all its mounts. Refuses when somebody writes to it, when the
/// settings ask for a refusal, and when no file system holds the disk.
pub(super) fn release(
    world: &World,
    permit: &Authorized<Withdraw>,
    volume: &VolumeId,
    device: &Device,
) -> Done<()> {
    // A mount that somebody else made is no copy, and stays unchanged.
    let ours = world.mounted.accounts_for(device, volume);
    if !ours.at(Step::ReadDevice)? {
        return Err(Refusal::StillHeld.into());
    }
    let Some(joined) = alive(permit, device) else {
        return Err(Refusal::StillHeld.into());
    };
    if world.copied_mounts == CopiedMounts::Refuse {
        return Err(held());
    }
    match joined.make_read_only() {
        Ok(()) => {}
        // Files on the copy are open for writing.
        Err(Errno::BUSY) => return Err(held()),
        Err(errno) => return Err(errno).at(Step::Sync),
    }
    device.flush().at(Step::Sync)?;
    journal::warn(
        "released-beside-copy",
        &[
            ("disk", device.disk()),
            (
                "meaning",
                "files that are open in another mount namespace keep the file system; it is written back and read-only now",
            ),
        ],
    );
    Ok(())
}

/// Joins the live file system of the disk, of whichever type. For a type other than the mounted one
/// the kernel reports the disk as busy.
fn alive(permit: &Authorized<Withdraw>, device: &Device) -> Option<Joined> {
    // Read-only first: such a mount writes nothing to a disk whose other mount has just gone.
    [true, false].into_iter().find_map(|read_only| {
        FsType::ALL
            .iter()
            .find_map(|fs| mounts::join(permit, *fs, device, read_only).ok())
    })
}

fn held() -> Stop {
    Refused::because(Refusal::StillHeld, Seen::Copied).into()
}

/// Returns whether the stop says that the disk is held, and the holder may be a copy of an earlier
/// mount.
pub(super) fn may_be(world: &World, stop: &Stop) -> bool {
    let held = Refused::from(Refusal::StillHeld);
    world.copied_mounts == CopiedMounts::Release
        && matches!(stop, Stop::Refused(refused) if *refused == held)
}

/// Makes a mount for a stage while a copy exists. Nobody can claim the disk, so no tool can run:
/// the file system must be fit to be mounted unchanged, as it is after [`release`].
pub(super) fn beside(
    world: &World,
    asked: &Stage,
    device: &Device,
    facts: &DiskFacts,
    stop: Stop,
) -> Done<(Authorized<StageDisk>, Joined)> {
    let volume = &asked.disk.volume;
    let ours = world.mounted.accounts_for(device, volume);
    if !ours.at(Step::ReadDevice)? {
        return Err(stop);
    }
    let disk = device.read_directly(&world.disks).at(Step::ReadDevice)?;
    let content = content::look(&disk, prepare::now()).at(Step::ReadDevice)?;
    drop(disk);
    let evidence = Evidence {
        uuid: crate::tools::identifier(volume),
        unfinished: false,
        examined: world.examined.has(device),
        used_raw: world.examined.was_used_raw(device),
    };
    let permit = prepare::judged(world, asked, facts, &content, evidence)?;
    if permit.act().preparation != Preparation::Nothing {
        return Err(stop);
    }
    let joined = mounts::join_staged(&permit, asked.fs, device, true)
        .or_else(|_| mounts::join_staged(&permit, asked.fs, device, false))
        .map_err(|_| stop)?;
    world.verify(device)?;
    if !asked.read_only {
        joined.make_writable().at(Step::CreateMount)?;
    }
    journal::warn(
        "staged-beside-copy",
        &[
            ("volume", volume.as_str()),
            (
                "meaning",
                "files that are open in another mount namespace keep the file system of an earlier mount, whose options hold for this one, too",
            ),
        ],
    );
    Ok((permit, joined))
}

/// Returns the joined mount with these attributes set.
pub(super) fn mount(joined: Joined, attributes: u64) -> Done<Detached> {
    let mount = joined.into_mount();
    mount.change(attributes, 0)?;
    Ok(mount)
}
