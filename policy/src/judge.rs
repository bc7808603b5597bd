//! The decision: a request and the facts in, an [`Authorized`] act or a refusal out. Pure, without a clock and
//! without a system call. The helper's operations take only `Authorized` values, and only this module makes them.
use crate::defaults;
use crate::facts::{
    Content, DiskFacts, Evidence, ExtFacts, ExtLevel, MountFacts, Owner, PathFacts, VolumeMount,
};
use crate::growth;
use crate::images::UntrustedImages;
use ebs_csi_wire::{
    Disk, Expand, FsType, Origin, PublishBlock, PublishFilesystem, Refusal, Signature, Source,
    Stage,
};

/// An act that the policy allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorized<T>(T);

impl<T> Authorized<T> {
    /// What is allowed.
    pub fn act(&self) -> &T {
        &self.0
    }

    /// What is allowed, by value.
    pub fn into_act(self) -> T {
        self.0
    }
}

/// How a staging request goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagePlace {
    /// The disk is mounted there as asked.
    Already,
    /// Nothing is mounted there; the directory is there or must be made.
    Fresh {
        /// The directory must be made.
        make: bool,
    },
}

/// What is done to a disk before it is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageDisk {
    /// What has to be done first.
    pub preparation: Preparation,
    /// The kernel must not replay the journal: the request is read-only and there is something to replay.
    pub no_replay: bool,
    /// An ext file system that ends before its disk does, and may grow.
    pub grow: bool,
    /// An offline growth of it never finished: what a checker does not repair unasked may be
    /// repaired all the same.
    pub growth_cut_short: bool,
    /// The file system is ours: made here, on a volume that began blank, or a copy of what this
    /// driver keeps for this cluster.
    pub ours: bool,
    /// It is not known to be ours, and nobody said that it was made elsewhere: it is mounted
    /// without the check of what was.
    pub untold: bool,
    /// An ext file system that goes on being written to after an error. Any other becomes read-only,
    /// and none stops its node, whatever its superblock says: the mount asks for the one or the other.
    pub continues: bool,
}

/// The step between finding a disk and mounting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparation {
    /// Make the file system: the disk is proved blank.
    Format,
    /// Let the checker look first.
    Check,
    /// Let the checker look at all of it first, clean or not: it was made elsewhere.
    Examine,
    /// Mount it as it is.
    Nothing,
}

/// How a publish request goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// It is there as asked.
    Already,
    /// Bind it. The target must be made first when `make` is set.
    Bind {
        /// The target must be made.
        make: bool,
    },
}

/// How a request to take something away goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdraw {
    /// Nothing is there.
    Already,
    /// Nothing is mounted, an empty directory is left.
    RemoveDirectory,
    /// Nothing is mounted, a file is left.
    RemoveFile,
    /// Unmount, then look again.
    Unmount {
        /// A device node is bound there.
        block: bool,
    },
}

/// The identified disk may be worked on: it is not smaller than it was when it was attached.
pub fn disk(asked: &Disk, facts: &DiskFacts) -> Result<(), Refusal> {
    if asked
        .size_at_attach
        .is_some_and(|size| facts.whole_bytes < size.get())
    {
        return Err(Refusal::DeviceTooSmall);
    }
    Ok(())
}

/// Where a volume is to be staged. `mounts` are all places where its file system is mounted now, `raw` those where the disk
/// itself is shown.
pub fn stage_place(
    asked: &Stage,
    disk: &DiskFacts,
    place: &PathFacts,
    mounts: &[VolumeMount],
    raw: &[VolumeMount],
) -> Result<Authorized<StagePlace>, Refusal> {
    match place {
        PathFacts::Mounted(mount) => {
            let same = !mount.block
                && mount.device == disk.device
                && mount.whole
                && mount.read_only == asked.read_only;
            if same {
                Ok(Authorized(StagePlace::Already))
            } else {
                Err(Refusal::MountedDifferently)
            }
        }
        PathFacts::File | PathFacts::Other => Err(Refusal::TargetOccupied),
        _ if !mounts.is_empty() => Err(Refusal::StagedElsewhere),
        // Whoever has the disk itself may write anywhere on it, now or later.
        _ if !raw.is_empty() => Err(Refusal::StillHeld),
        PathFacts::Missing => Ok(Authorized(StagePlace::Fresh { make: true })),
        PathFacts::Directory => Ok(Authorized(StagePlace::Fresh { make: false })),
    }
}

/// What may be done to a disk with this content. `images` is the rule for file systems that are not ours.
pub fn stage_disk(
    asked: &Stage,
    disk: &DiskFacts,
    content: &Content,
    evidence: Evidence,
    images: UntrustedImages,
) -> Result<Authorized<StageDisk>, Refusal> {
    let mut act = by_content(asked, disk, content, evidence)?;
    let uuid = match content {
        Content::Ext(facts) => facts.uuid,
        Content::Xfs(facts) => facts.uuid,
        _ => return Ok(Authorized(act)),
    };
    // Nothing stays of what a format replaces.
    act.ours = act.preparation == Preparation::Format
        || asked.disk.origin == Origin::Blank
        || (asked.disk.origin == Origin::Copy && asked.disk.source == Source::Own)
        || uuid == evidence.uuid;
    let untold = asked.disk.origin == Origin::Unknown
        || (asked.disk.origin == Origin::Copy && asked.disk.source == Source::Untold);
    match images {
        _ if act.ours => {}
        UntrustedImages::Deny => return Err(Refusal::UntrustedImage),
        UntrustedImages::Allow => {}
        // As the driver does that attached it: a check of every such volume would take a node's
        // first start from minutes to hours.
        UntrustedImages::Check if untold => act.untold = true,
        UntrustedImages::Check if evidence.examined => {}
        // No checker can judge an ext before its journal is replayed, which writes.
        UntrustedImages::Check if act.no_replay && matches!(content, Content::Ext(_)) => {
            return Err(Refusal::UntrustedImage);
        }
        UntrustedImages::Check => act.preparation = Preparation::Examine,
    }
    Ok(Authorized(act))
}

fn by_content(
    asked: &Stage,
    disk: &DiskFacts,
    content: &Content,
    evidence: Evidence,
) -> Result<StageDisk, Refusal> {
    // Only a part of a blank disk was read: somebody else must say that there is nothing between. A
    // format that began may be finished.
    let format = || {
        if asked.disk.origin == Origin::Copy {
            Err(Refusal::CopyWithoutFilesystem)
        } else if asked.read_only {
            Err(Refusal::ReadOnlyBlank)
        } else if evidence.used_raw {
            Err(Refusal::UsedRaw)
        } else if asked.disk.origin == Origin::Unknown && !evidence.unfinished {
            Err(Refusal::OriginUntold)
        } else {
            Ok(StageDisk {
                preparation: Preparation::Format,
                no_replay: false,
                grow: false,
                growth_cut_short: false,
                ours: true,
                untold: false,
                continues: false,
            })
        }
    };
    match content {
        Content::Blank => format(),
        Content::PartitionTable(_) => Err(Refusal::PartitionTable),
        Content::Foreign(_) => Err(Refusal::ForeignContent),
        // All that stands there was written by the format that never finished.
        Content::Unknown { .. } if evidence.unfinished => format(),
        Content::Damaged(signature)
            if evidence.unfinished && is_ext(*signature) == (asked.fs != FsType::Xfs) =>
        {
            format()
        }
        Content::Unknown { .. } => Err(Refusal::UnknownContent),
        Content::Damaged(signature) if is_ext(*signature) == (asked.fs != FsType::Xfs) => {
            Err(Refusal::FilesystemErrors)
        }
        Content::Damaged(_) => Err(Refusal::ForeignContent),
        // mke2fs writes the first superblock last, behind everything that it describes: what has one is whole.
        Content::Ext(facts) => stage_ext(asked, disk, facts),
        Content::Xfs(facts) => {
            if asked.fs != FsType::Xfs {
                Err(Refusal::ForeignContent)
            } else if facts.in_progress {
                // Only mkfs.xfs sets this mark, and only our own format writes this identifier and what else is there.
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
                Ok(StageDisk {
                    preparation: Preparation::Nothing,
                    // XFS cannot say from its superblock whether its log is empty.
                    no_replay: asked.read_only,
                    grow: false,
                    growth_cut_short: false,
                    ours: false,
                    untold: false,
                    continues: false,
                })
            }
        }
    }
}

fn is_ext(signature: Signature) -> bool {
    matches!(
        signature,
        Signature::Ext2 | Signature::Ext3 | Signature::Ext4
    )
}

fn stage_ext(asked: &Stage, disk: &DiskFacts, facts: &ExtFacts) -> Result<StageDisk, Refusal> {
    let fits = match asked.fs {
        FsType::Ext4 => true,
        FsType::Ext3 => facts.level != ExtLevel::Ext4,
        FsType::Xfs => false,
    };
    if !fits {
        return Err(Refusal::ForeignContent);
    }
    // Both make the kernel do what no request asked for: open another disk, or worse.
    if facts.outside_journal || !defaults::allowed(facts) {
        return Err(Refusal::SuperblockAsks);
    }
    if facts.bytes > disk.bytes {
        return Err(Refusal::DeviceTooSmall);
    }
    // A rest smaller than a group stays unused for ever: growing would do nothing.
    let group = facts.group_blocks.saturating_mul(facts.block_bytes);
    let room = disk.bytes - facts.bytes;
    Ok(StageDisk {
        preparation: if facts.clean || asked.read_only {
            Preparation::Nothing
        } else {
            Preparation::Check
        },
        no_replay: asked.read_only && facts.needs_recovery,
        grow: !asked.read_only && room > 0 && room >= group,
        growth_cut_short: !asked.read_only && growth::was_cut_short(facts),
        ours: false,
        untold: false,
        continues: facts.continues,
    })
}

/// Whether what is mounted at a path may be taken for the volume's. A disk that has left the node proves nothing
/// any more; its dead mount may only be removed, and so may that of a disk without a serial that is remembered no more: a node can
/// always be cleaned.
fn belongs(owner: Owner) -> Result<(), Refusal> {
    match owner {
        Owner::ThisVolume | Owner::Gone | Owner::Unproved => Ok(()),
        Owner::Another => Err(Refusal::VolumeNotAtPath),
    }
}

/// Take a staged volume away.
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

/// Take a published volume away.
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

/// Targets at which one volume may be shown: more than a node runs pods, and few enough to be
/// listed again and again.
pub const PUBLICATIONS: usize = 512;

/// One more target, where the volume is shown at so many already.
pub fn one_more(shown: usize) -> Result<(), Refusal> {
    if shown < PUBLICATIONS {
        Ok(())
    } else {
        Err(Refusal::TooManyPublications)
    }
}

/// Show a staged file system at a target.
pub fn publish_filesystem(
    asked: &PublishFilesystem,
    disk: &DiskFacts,
    staging: &PathFacts,
    target: &PathFacts,
) -> Result<Authorized<Publish>, Refusal> {
    let PathFacts::Mounted(staged) = staging else {
        return Err(Refusal::NotStaged);
    };
    if staged.block || staged.device != disk.device || !staged.whole {
        return Err(Refusal::NotStaged);
    }
    // What is staged read-only cannot be shown writable.
    if staged.read_only && !asked.read_only {
        return Err(Refusal::MountedDifferently);
    }
    match target {
        PathFacts::Mounted(mount) => {
            let same = !mount.block
                && mount.device == disk.device
                && mount.whole
                && mount.read_only == asked.read_only;
            if same {
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

/// Show a disk itself at a target. `mounts` are the places where a file system of it is mounted, `others` those where the disk
/// itself is shown already.
pub fn publish_block(
    asked: &PublishBlock,
    disk: &DiskFacts,
    target: &PathFacts,
    mounts: &[VolumeMount],
    others: &[VolumeMount],
) -> Result<Authorized<Publish>, Refusal> {
    // What makes a whole disk read-only does not hold for a part of it.
    if asked.disk.partition.is_some() && asked.read_only {
        return Err(Refusal::Unsupported);
    }
    // A raw writer beside a mounted file system destroys it.
    if !mounts.is_empty() {
        return Err(Refusal::StillHeld);
    }
    // Only the disk as a whole can be made read-only: what is shown of it is all writable, or nothing is.
    if others
        .iter()
        .any(|other| other.read_only != asked.read_only)
    {
        return Err(Refusal::StillHeld);
    }
    match target {
        PathFacts::Mounted(mount) => {
            let same =
                mount.block && mount.device == disk.device && mount.read_only == asked.read_only;
            if same {
                Ok(Authorized(Publish::Already))
            } else {
                Err(Refusal::MountedDifferently)
            }
        }
        PathFacts::Missing => Ok(Authorized(Publish::Bind { make: true })),
        PathFacts::File => Ok(Authorized(Publish::Bind { make: false })),
        PathFacts::Directory | PathFacts::Other => Err(Refusal::TargetOccupied),
    }
}

/// What a request about a mounted volume looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Its file system.
    Filesystem {
        /// It cannot be written there.
        read_only: bool,
    },
    /// The disk itself.
    Block,
}

/// The volume is at the path, staged or published.
pub fn shown(place: &PathFacts, owner: Owner) -> Result<Authorized<Shown>, Refusal> {
    match (place, owner) {
        (PathFacts::Mounted(mount), Owner::ThisVolume) => Ok(Authorized(if mount.block {
            Shown::Block
        } else {
            Shown::Filesystem {
                read_only: mount.read_only,
            }
        })),
        (PathFacts::Mounted(_), Owner::Unproved) => Err(Refusal::DeviceWithoutSerial),
        _ => Err(Refusal::VolumeNotAtPath),
    }
}

/// The disk has a size that the request can be content with.
pub fn expand(asked: &Expand, disk_bytes: u64) -> Result<(), Refusal> {
    let too_small = asked
        .required_bytes
        .is_some_and(|required| disk_bytes < required.get());
    let too_large = asked
        .limit_bytes
        .is_some_and(|limit| disk_bytes > limit.get());
    if too_small || too_large {
        Err(Refusal::SizeOutOfRange)
    } else {
        Ok(())
    }
}
