//! Decides about a request from the facts: the result is an [`Authorized`] act or a refusal. The
//! module is pure: it reads no clock and makes no system call. The helper's operations take only
//! `Authorized` values, and only this module makes them.
use crate::facts::{
    Content, DiskFacts, Evidence, ExtFacts, ExtLevel, MountFacts, Owner, PathFacts, VolumeMount,
};
use crate::flag;
use ebs_csi_wire::{
    Disk, Expand, FsType, Origin, PublishBlock, PublishFilesystem, Refusal, Signature, Source,
    Stage,
};

pub mod disk_by_name;
pub mod disk_holders;
mod ext_default_options;
pub mod offline_growth;
pub mod untrusted_images;

use untrusted_images::UntrustedImages;

/// An act that the policy allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorized<T>(T);

impl<T> Authorized<T> {
    /// Returns the allowed act.
    pub fn act(&self) -> &T {
        &self.0
    }

    /// Returns the allowed act by value.
    pub fn into_act(self) -> T {
        self.0
    }
}

/// How a staging request proceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagePlace {
    /// The disk is mounted there as requested.
    Already,
    /// Nothing is mounted there; the directory is there or must be made.
    Fresh {
        /// The directory must be made.
        make: bool,
    },
}

/// What is done to a disk before its mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageDisk {
    /// The step before the mount.
    pub preparation: Preparation,
    /// A mount flag of the request forbids the replay of a journal that may not be empty.
    pub no_replay: bool,
    /// The ext file system ends before its disk does, and may grow.
    pub grow: bool,
    /// An offline growth of the file system never finished, so the checker may also make the
    /// repairs that its automatic mode refuses.
    pub growth_cut_short: bool,
    /// The file system is ours: made by this driver on a volume that began blank, or a copy from
    /// this driver and cluster.
    pub ours: bool,
    /// The file system is not known to be ours, and nobody said that it was made elsewhere. It is
    /// mounted without the check that file systems made elsewhere need.
    pub untold: bool,
    /// The ext file system stays writable after an error. Without this flag it becomes read-only.
    /// The mount always asks for one of the two, so no superblock can make an error stop the node.
    pub continues: bool,
}

impl StageDisk {
    /// The disk is mounted as it is, and nothing is known about who made its file system.
    const AS_IT_IS: Self = Self {
        preparation: Preparation::Nothing,
        no_replay: false,
        grow: false,
        growth_cut_short: false,
        ours: false,
        untold: false,
        continues: false,
    };
}

/// The step between finding a disk and mounting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparation {
    /// Make the file system: the disk is proved blank.
    Format,
    /// Run the checker first.
    Check,
    /// Run a full check first, even on a clean file system: it was made elsewhere.
    Examine,
    /// Mount the disk as it is.
    Nothing,
}

/// How a publish request proceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// The target already shows the volume as requested.
    Already,
    /// Bind the volume to the target.
    Bind {
        /// The target must be made.
        make: bool,
    },
}

/// How a request to unstage or unpublish proceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdraw {
    /// Nothing is there.
    Already,
    /// Nothing is mounted; an empty directory remains.
    RemoveDirectory,
    /// Nothing is mounted; a file remains.
    RemoveFile,
    /// Unmount, then read the path again.
    Unmount {
        /// A device node is bound there.
        block: bool,
    },
}

/// Checks that the identified disk is not smaller than it was when it was attached.
pub fn disk(request: &Disk, facts: &DiskFacts) -> Result<(), Refusal> {
    if request.size_at_attach.is_some_and(|size| facts.whole_bytes < size.get()) {
        return Err(Refusal::DeviceTooSmall);
    }
    Ok(())
}

/// Returns whether the mount is the disk's file system from its root directory on.
fn shows_all_of(mount: &MountFacts, disk: &DiskFacts) -> bool {
    !mount.block && mount.device == disk.device && mount.whole
}

/// Decides where a volume is staged. `mounts` are all places where its file system is mounted now,
/// `raw` those where the disk itself is shown.
pub fn stage_place(
    request: &Stage,
    disk: &DiskFacts,
    place: &PathFacts,
    mounts: &[VolumeMount],
    raw: &[VolumeMount],
) -> Result<Authorized<StagePlace>, Refusal> {
    match place {
        PathFacts::Mounted(mount) => {
            if shows_all_of(mount, disk) && mount.read_only == request.read_only {
                Ok(Authorized(StagePlace::Already))
            } else {
                Err(Refusal::MountedDifferently)
            }
        }
        PathFacts::File | PathFacts::Other => Err(Refusal::TargetOccupied),
        _ if !mounts.is_empty() => Err(Refusal::StagedElsewhere),
        // A holder of the disk itself may write anywhere on it, now or later.
        _ if !raw.is_empty() => Err(Refusal::StillHeld),
        PathFacts::Missing => Ok(Authorized(StagePlace::Fresh { make: true })),
        PathFacts::Directory => Ok(Authorized(StagePlace::Fresh { make: false })),
    }
}

/// Decides what may be done to a disk with this content. `images` is the rule for file systems that
/// are not ours.
pub fn stage_disk(
    request: &Stage,
    disk: &DiskFacts,
    content: &Content,
    evidence: Evidence,
    images: UntrustedImages,
) -> Result<Authorized<StageDisk>, Refusal> {
    let mut act = by_content(request, disk, content, evidence)?;
    let uuid = match content {
        Content::Ext(facts) => facts.uuid,
        Content::Xfs(facts) => facts.uuid,
        _ => return Ok(Authorized(act)),
    };
    // A format replaces all content, so its result is ours.
    act.ours = act.preparation == Preparation::Format
        || request.disk.origin == Origin::Blank
        || (request.disk.origin == Origin::Copy && request.disk.source == Source::Own)
        || uuid == evidence.uuid;
    let untold = request.disk.origin == Origin::Unknown
        || (request.disk.origin == Origin::Copy && request.disk.source == Source::Untold);
    match images {
        _ if act.ours => {}
        UntrustedImages::Deny => return Err(Refusal::UntrustedImage),
        UntrustedImages::Allow => {}
        // Mounts the file system unchecked, as the driver that attached the volume does: a check of
        // every such volume would extend a node's first start from minutes to hours.
        UntrustedImages::Check if untold => act.untold = true,
        UntrustedImages::Check if evidence.examined => {}
        // No checker can judge an ext file system before its journal is replayed.
        UntrustedImages::Check if act.no_replay && matches!(content, Content::Ext(_)) => {
            return Err(Refusal::UntrustedImage);
        }
        UntrustedImages::Check => act.preparation = Preparation::Examine,
    }
    Ok(Authorized(act))
}

fn by_content(
    request: &Stage,
    disk: &DiskFacts,
    content: &Content,
    evidence: Evidence,
) -> Result<StageDisk, Refusal> {
    // Only a part of a blank disk was read, so the volume's origin must prove that the rest is
    // blank. An unfinished format of this volume may be completed without that proof.
    let format = || {
        if request.disk.origin == Origin::Copy {
            Err(Refusal::CopyWithoutFilesystem)
        } else if request.read_only {
            Err(Refusal::ReadOnlyBlank)
        } else if evidence.used_raw {
            Err(Refusal::UsedRaw)
        } else if request.disk.origin == Origin::Unknown && !evidence.unfinished {
            Err(Refusal::OriginUntold)
        } else {
            let preparation = Preparation::Format;
            Ok(StageDisk { preparation, ours: true, ..StageDisk::AS_IT_IS })
        }
    };
    match content {
        Content::Blank => format(),
        Content::PartitionTable(_) => Err(Refusal::PartitionTable),
        Content::Foreign(_) => Err(Refusal::ForeignContent),
        Content::Damaged(signature) if is_ext(*signature) == (request.fs == FsType::Xfs) => {
            Err(Refusal::ForeignContent)
        }
        // The format that never finished wrote everything on the disk.
        Content::Unknown { .. } | Content::Damaged(_) if evidence.unfinished => format(),
        Content::Unknown { .. } => Err(Refusal::UnknownContent),
        Content::Damaged(_) => Err(Refusal::FilesystemErrors),
        // mke2fs writes the first superblock last, after everything that the superblock describes,
        // so a file system with a superblock is complete.
        Content::Ext(facts) => stage_ext(request, disk, facts),
        Content::Xfs(facts) => {
            if request.fs != FsType::Xfs {
                Err(Refusal::ForeignContent)
            } else if facts.in_progress {
                // Only mkfs.xfs sets `in_progress`, and only this driver's format writes this
                // identifier and the remaining content.
                if facts.uuid == evidence.uuid && evidence.unfinished {
                    format()
                } else {
                    Err(Refusal::UnknownContent)
                }
            } else if !facts.sound {
                Err(Refusal::FilesystemErrors)
            } else if facts.bytes > disk.bytes {
                Err(Refusal::DeviceTooSmall)
            } else {
                // The superblock of XFS does not tell whether the log is empty. The kernel replays
                // the log, also for a read-only mount.
                Ok(StageDisk { no_replay: forbids_replay(request), ..StageDisk::AS_IT_IS })
            }
        }
    }
}

/// Returns whether a flag asks for a read-only mount that leaves the journal as it is.
fn forbids_replay(request: &Stage) -> bool {
    request.read_only
        && flag::plan(&request.flags, request.fs, true).is_ok_and(|plan| plan.no_replay)
}

fn is_ext(signature: Signature) -> bool {
    matches!(signature, Signature::Ext2 | Signature::Ext3 | Signature::Ext4)
}

fn stage_ext(request: &Stage, disk: &DiskFacts, facts: &ExtFacts) -> Result<StageDisk, Refusal> {
    let fits = match request.fs {
        FsType::Ext4 => true,
        FsType::Ext3 => facts.level != ExtLevel::Ext4,
        FsType::Xfs => false,
    };
    if !fits {
        return Err(Refusal::ForeignContent);
    }
    // Either makes the kernel do what no request asked for, such as open another disk.
    if facts.outside_journal || !ext_default_options::allowed(facts) {
        return Err(Refusal::SuperblockAsks);
    }
    if facts.bytes > disk.bytes {
        return Err(Refusal::DeviceTooSmall);
    }
    let no_replay = facts.needs_recovery && forbids_replay(request);
    // Without the replay, files that were synced do not show.
    let replay = facts.needs_recovery && !no_replay;
    if replay && disk.read_only {
        return Err(Refusal::DeviceReadOnly);
    }
    // A remainder smaller than a block group stays unused for ever, so a growth would do nothing.
    let group = facts.group_blocks.saturating_mul(facts.block_bytes);
    let room = disk.bytes - facts.bytes;
    Ok(StageDisk {
        preparation: if replay || !(facts.clean || request.read_only) {
            Preparation::Check
        } else {
            Preparation::Nothing
        },
        no_replay,
        grow: !request.read_only && room > 0 && room >= group,
        growth_cut_short: !request.read_only && offline_growth::was_cut_short(facts),
        continues: facts.continues,
        ..StageDisk::AS_IT_IS
    })
}

/// Checks that the mount at a path may be treated as the volume's. A disk that has left the node
/// proves nothing any more, and neither does a disk without a serial whose identification is
/// forgotten. Their mounts may only be removed, so that a node can always be cleaned.
fn belongs(owner: Owner) -> Result<(), Refusal> {
    match owner {
        Owner::ThisVolume | Owner::Gone | Owner::Unproved => Ok(()),
        Owner::Another => Err(Refusal::VolumeNotAtPath),
    }
}

/// Decides how a staged volume is removed.
pub fn unstage(place: &PathFacts, owner: Owner) -> Result<Authorized<Withdraw>, Refusal> {
    match place {
        PathFacts::Missing => Ok(Authorized(Withdraw::Already)),
        PathFacts::Directory => Ok(Authorized(Withdraw::RemoveDirectory)),
        PathFacts::Mounted(MountFacts { block: true, .. }) => Err(Refusal::VolumeNotAtPath),
        PathFacts::Mounted(_) => {
            belongs(owner)?;
            Ok(Authorized(Withdraw::Unmount { block: false }))
        }
        PathFacts::File | PathFacts::Other => Err(Refusal::TargetOccupied),
    }
}

/// Decides how a published volume is removed.
pub fn unpublish(place: &PathFacts, owner: Owner) -> Result<Authorized<Withdraw>, Refusal> {
    match place {
        PathFacts::Missing => Ok(Authorized(Withdraw::Already)),
        PathFacts::Directory => Ok(Authorized(Withdraw::RemoveDirectory)),
        PathFacts::File => Ok(Authorized(Withdraw::RemoveFile)),
        PathFacts::Mounted(mount) => {
            belongs(owner)?;
            Ok(Authorized(Withdraw::Unmount { block: mount.block }))
        }
        PathFacts::Other => Err(Refusal::TargetOccupied),
    }
}

/// Limit for the targets of one volume: more than a node runs pods, and few enough to list
/// repeatedly.
pub const PUBLICATIONS: usize = 512;

/// Checks that a volume with `shown` targets may get one more.
pub fn one_more(shown: usize) -> Result<(), Refusal> {
    if shown < PUBLICATIONS { Ok(()) } else { Err(Refusal::TooManyPublications) }
}

/// Decides how a staged file system is shown at a target.
pub fn publish_filesystem(
    request: &PublishFilesystem,
    disk: &DiskFacts,
    staging: &PathFacts,
    target: &PathFacts,
) -> Result<Authorized<Publish>, Refusal> {
    let PathFacts::Mounted(staged) = staging else {
        return Err(Refusal::NotStaged);
    };
    if !shows_all_of(staged, disk) {
        return Err(Refusal::NotStaged);
    }
    // What is staged read-only cannot be shown writable.
    if staged.read_only && !request.read_only {
        return Err(Refusal::MountedDifferently);
    }
    match target {
        PathFacts::Mounted(mount) => {
            if shows_all_of(mount, disk) && mount.read_only == request.read_only {
                Ok(Authorized(Publish::Already))
            } else {
                Err(Refusal::MountedDifferently)
            }
        }
        PathFacts::Missing => Ok(Authorized(Publish::Bind { make: true })),
        PathFacts::Directory => Ok(Authorized(Publish::Bind { make: false })),
        PathFacts::File | PathFacts::Other => Err(Refusal::TargetOccupied),
    }
}

/// Decides how a disk itself is shown at a target. `mounts` are the places where a file system of
/// the disk is mounted, `others` those where the disk itself is already shown.
pub fn publish_block(
    request: &PublishBlock,
    disk: &DiskFacts,
    target: &PathFacts,
    mounts: &[VolumeMount],
    others: &[VolumeMount],
) -> Result<Authorized<Publish>, Refusal> {
    // The setting that makes a whole disk read-only does not cover a partition.
    if request.disk.partition.is_some() && request.read_only {
        return Err(Refusal::Unsupported);
    }
    // A raw writer beside a mounted file system destroys the file system.
    if !mounts.is_empty() {
        return Err(Refusal::StillHeld);
    }
    // Only the disk as a whole can be made read-only, so either all its targets are writable or
    // none is.
    if others.iter().any(|other| other.read_only != request.read_only) {
        return Err(Refusal::StillHeld);
    }
    match target {
        PathFacts::Mounted(mount) => {
            let same =
                mount.block && mount.device == disk.device && mount.read_only == request.read_only;
            if same { Ok(Authorized(Publish::Already)) } else { Err(Refusal::MountedDifferently) }
        }
        PathFacts::Missing => Ok(Authorized(Publish::Bind { make: true })),
        PathFacts::File => Ok(Authorized(Publish::Bind { make: false })),
        PathFacts::Directory | PathFacts::Other => Err(Refusal::TargetOccupied),
    }
}

/// What a request about a mounted volume refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Its file system.
    Filesystem {
        /// The mount refuses writes.
        read_only: bool,
    },
    /// The disk itself.
    Block,
}

/// Checks that the volume is staged or published at the path.
pub fn shown(place: &PathFacts, owner: Owner) -> Result<Authorized<Shown>, Refusal> {
    match (place, owner) {
        (PathFacts::Mounted(mount), Owner::ThisVolume) => Ok(Authorized(if mount.block {
            Shown::Block
        } else {
            Shown::Filesystem { read_only: mount.read_only }
        })),
        (PathFacts::Mounted(_), Owner::Unproved) => Err(Refusal::DeviceWithoutSerial),
        _ => Err(Refusal::VolumeNotAtPath),
    }
}

/// Checks that the disk's size is within the range of the request.
pub fn expand(request: &Expand, disk_bytes: u64) -> Result<(), Refusal> {
    let too_small = request.required_bytes.is_some_and(|required| disk_bytes < required.get());
    let too_large = request.limit_bytes.is_some_and(|limit| disk_bytes > limit.get());
    if too_small || too_large { Err(Refusal::SizeOutOfRange) } else { Ok(()) }
}
