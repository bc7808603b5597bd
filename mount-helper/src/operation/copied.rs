//! A file system that is alive in another mount namespace after its mounts here are gone. A
//! container that mounts `/` of the node without mount propagation has a copy of every mount that
//! stood when it started; the copies go with the directory that they stand on, but a file that is
//! open there, or a working directory, keeps the file system.
//!
//! The kernel has one superblock for all mounts of a disk. A further mount of the disk joins it,
//! and through that it is made read-only for everybody: then nothing is left to be written, and
//! nothing can be written later.
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

/// What is done about a file system that another mount namespace keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CopiedMounts {
    /// The volume is released once the file system is read-only for everybody.
    #[default]
    Release,
    /// The volume is held until nobody keeps the file system.
    Refuse,
}

impl CopiedMounts {
    /// Its name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Refuse => "refuse",
        }
    }

    /// From the name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Release, Self::Refuse]
            .into_iter()
            .find(|one| one.as_str() == name)
    }
}

/// Make the file system read-only for whoever has it mounted. A refusal when somebody writes to it,
/// when the settings want one, and when the disk is not held by a file system.
pub(super) fn release(
    world: &World,
    permit: &Authorized<Withdraw>,
    volume: &VolumeId,
    device: &Device,
) -> Done<()> {
    // Somebody else's mount is no copy, and it stays as it is.
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
        // Files are open for writing there.
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

/// The live file system of the disk, whichever it is. A type that is not the one mounted finds the
/// disk busy.
fn alive(permit: &Authorized<Withdraw>, device: &Device) -> Option<Joined> {
    // Read-only first: that never starts to write to a disk whose other mount has just gone.
    [true, false].into_iter().find_map(|read_only| {
        FsType::ALL
            .iter()
            .find_map(|fs| mounts::join(permit, *fs, device, read_only).ok())
    })
}

fn held() -> Stop {
    Refused::because(Refusal::StillHeld, Seen::Copied).into()
}

/// The disk was found held, and what holds it may be a copy of an earlier mount.
pub(super) fn may_be(world: &World, stop: &Stop) -> bool {
    let held = Refused::from(Refusal::StillHeld);
    world.copied_mounts == CopiedMounts::Release
        && matches!(stop, Stop::Refused(refused) if *refused == held)
}

/// A mount for a stage beside the copy. Nobody can claim the disk, so that no tool can run: what
/// stands there must be fit to be mounted as it is, as it is after [`release`].
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

/// The mount of what was joined.
pub(super) fn mount(joined: Joined, attributes: u64) -> Done<Detached> {
    let mount = joined.into_mount();
    mount.change(attributes, 0)?;
    Ok(mount)
}
