//! Maps the helper's answers to failures for the caller: one table with every answer.
//!
//! The helper answers with closed lists and no text. The condition of an answer depends on the
//! call: the same missing path is an invalid argument of a publish and a missing volume of a stats
//! call.

use std::fmt::Display;

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{Failed, Observation, Refusal, Refused, Signature, Step, ToolEnd, listed_enum};

use super::{Deadline, HelperError};

/// As in errno(3).
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;
/// signal(7).
const SIGKILL: u8 = 9;

listed_enum! {
    /// A call of the CSI Node service, with a word for its work.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum NodeCall with pub(crate) fn verb -> &'static str {
        /// NodeStageVolume.
        Stage = "staging",
        /// NodeUnstageVolume.
        Unstage = "unstaging",
        /// NodePublishVolume.
        Publish = "publishing",
        /// NodeUnpublishVolume.
        Unpublish = "unpublishing",
        /// NodeExpandVolume.
        Expand = "growing",
        /// NodeGetVolumeStats.
        Stats = "measuring",
    }
}

impl NodeCall {
    /// Returns the field of the request that has the path.
    const fn path_field(self) -> &'static str {
        match self {
            Self::Stage | Self::Unstage => "staging_target_path",
            Self::Publish | Self::Unpublish => "target_path",
            Self::Expand | Self::Stats => "volume_path",
        }
    }
}

/// Returns the failure of an RPC about `volume` at `path`.
pub(crate) fn failure(
    call: NodeCall,
    volume: &dyn Display,
    path: &dyn Display,
    error: &HelperError,
    deadline: Deadline,
) -> Failure {
    let what = match error {
        // The path itself is at fault: the text names its field.
        HelperError::Refused(Refused {
            reason: Refusal::PathOutside | Refusal::PathNotPlain,
            ..
        }) => {
            format!("{} {volume}: {} {path}", call.verb(), call.path_field())
        }
        _ => format!("{} {volume} at {path}", call.verb()),
    };
    let (condition, why) = match error {
        HelperError::Refused(refused) => (refusal_condition(call, refused.reason), refusal_text(refused)),
        HelperError::Failed(failed) => (step_condition(call, failed), step_text(failed)),
        HelperError::Pending => (
            // A caller without its own deadline still waits, and has to retry.
            if deadline.chosen_by_caller() {
                Condition::DeadlinePassed
            } else {
                Condition::OperationPending
            },
            "it is not finished yet and goes on; the same request again joins it".to_owned(),
        ),
        HelperError::Crowded => (
            Condition::OperationPending,
            "too many requests wait for the mount-helper; retry".to_owned(),
        ),
        HelperError::Down { address, source } => (
            Condition::HelperDown,
            format!(
                "the mount-helper does not listen at {address} ({source}); check its container, then retry"
            ),
        ),
        HelperError::Lost(source) => (
            Condition::HelperDown,
            format!(
                "the mount-helper ended before it answered ({source}); retry, a repeated request finds what was done"
            ),
        ),
        HelperError::Silent => (
            Condition::HelperDown,
            "the mount-helper does not answer; check its container, then retry".to_owned(),
        ),
        HelperError::Unproved => (
            Condition::HelperDown,
            "what listens at the mount-helper's address does not have this node-agent's key; compare both key files, and look which program has the port".to_owned(),
        ),
        HelperError::Foreign(sent) => (
            Condition::HelperDown,
            format!(
                "the mount-helper answered with {sent}; bring node-agent and mount-helper to neighbouring releases"
            ),
        ),
    };
    Failure::new(condition, format!("{what}: {why}"))
}

/// Returns the observation first, then its meaning and the next step.
fn refusal_text(refused: &Refused) -> String {
    let advice = match &refused.seen {
        Some(Observation::Content { signature, .. })
            if refused.reason == Refusal::ForeignContent =>
        {
            foreign_content_advice(*signature)
        }
        _ => None,
    };
    let explanation = advice.unwrap_or(refused.reason.explain());
    match &refused.seen {
        Some(seen) => format!("{seen}: {explanation}"),
        None => explanation.to_owned(),
    }
}

/// Returns the next step for content that no other file system type in the request makes mountable;
/// `None` for the file systems that this driver mounts.
fn foreign_content_advice(signature: Signature) -> Option<&'static str> {
    use Signature as S;
    Some(match signature {
        S::Ext2 | S::Ext3 | S::Ext4 | S::Xfs => return None,
        S::Luks | S::Bitlocker => {
            "the driver opens no encryption inside of a volume; use the volume with volumeMode Block and open it in the pod, or a new volume of a class with encrypted: \"true\""
        }
        S::Lvm2
        | S::Md
        | S::Ddf
        | S::Drbd
        | S::Bcache
        | S::Vdo
        | S::Stratis
        | S::Oracleasm
        | S::Zfs => {
            "the disk is a part of something that the driver does not assemble; use it with volumeMode Block, or another volume"
        }
        S::Swap => {
            "the disk holds no files; use another volume, or run wipefs on it if it was swap space by mistake"
        }
        _ => {
            "the driver mounts ext3, ext4 and XFS; copy the files to a new volume, or use this one with volumeMode Block"
        }
    })
}

fn refusal_condition(call: NodeCall, refusal: Refusal) -> Condition {
    use NodeCall::{Expand, Publish, Stage, Stats, Unpublish, Unstage};
    match refusal {
        Refusal::PathNotPlain => match call {
            Expand | Stats => Condition::NotFound,
            Stage | Publish | Unstage | Unpublish => Condition::InvalidField,
        },
        Refusal::PathOutside | Refusal::MountFlag | Refusal::FsType | Refusal::FormatOption => {
            Condition::InvalidField
        }
        Refusal::DeviceNotFound | Refusal::VolumeNotAtPath => Condition::NotFound,
        // The attachment is not as required.
        Refusal::DeviceAmbiguous
        | Refusal::DeviceMismatch
        | Refusal::DeviceTooSmall
        | Refusal::DeviceReadOnly
        | Refusal::DeviceWithoutSerial => Condition::NotPrepared,
        Refusal::PartitionTable
        | Refusal::ForeignContent
        | Refusal::UnknownContent
        | Refusal::CopyWithoutFilesystem
        | Refusal::ReadOnlyBlank
        | Refusal::FilesystemErrors
        | Refusal::UntrustedImage
        | Refusal::SuperblockAsks
        | Refusal::OriginUntold
        | Refusal::UsedRaw
        | Refusal::KernelLacksFeature
        | Refusal::NewerThanChecker => Condition::ContentRefused,
        Refusal::MountedDifferently => match call {
            Stage | Publish => Condition::Incompatible,
            Unstage | Unpublish | Expand | Stats => Condition::InUse,
        },
        Refusal::StagedElsewhere
        | Refusal::TargetOccupied
        | Refusal::StillHeld
        | Refusal::Promised
        | Refusal::TooManyPublications => Condition::InUse,
        Refusal::NotStaged => Condition::NotPrepared,
        Refusal::SizeOutOfRange => Condition::CapacityOutOfRange,
        Refusal::Unsupported => Condition::Unsupported,
        Refusal::Busy => Condition::OperationPending,
        Refusal::Version => Condition::HelperDown,
    }
}

fn step_condition(call: NodeCall, failed: &Failed) -> Condition {
    match (call, failed.step) {
        // kubelet asks for growth before it starts a pod. After this code it starts the pod with
        // the old size, and the claim shows that its resize is pending.
        (NodeCall::Expand, Step::Grow) if why_not_grown(failed).is_some() => Condition::InUse,
        // The mount already exists: a code that means "certainly not done" would make kubelet
        // forget the mount.
        (NodeCall::Stage | NodeCall::Publish, Step::Grow | Step::Sync) => {
            Condition::OperationPending
        }
        _ => Condition::Local,
    }
}

/// Returns why the file system cannot grow as it is mounted, however often that is tried.
fn why_not_grown(failed: &Failed) -> Option<&'static str> {
    if failed.step != Step::Grow {
        return None;
    }
    match failed.errno?.get() {
        EPERM => Some(
            "growing a mounted ext4 needs CAP_SYS_RESOURCE, which the mount-helper was not given; grant it to its container, or let the \
             volume be unstaged and staged again: the next stage grows the file system before it is mounted, where resize2fs can (not with bigalloc)",
        ),
        EACCES => Some(
            "its application closed the root directory of the volume to others, and the mount-helper was not given CAP_DAC_READ_SEARCH; \
             grant it to its container",
        ),
        EROFS => Some("the file system is mounted read-only; stage the volume writable once"),
        EINVAL | EOPNOTSUPP => {
            Some("the kernel does not grow a file system with these features while it is mounted")
        }
        _ => None,
    }
}

fn step_text(failed: &Failed) -> String {
    let doing = match failed.step {
        Step::FindDevice => "looking for its disk",
        Step::ReadDevice => "reading its disk",
        Step::ClaimDevice => "opening its disk for this operation alone",
        Step::Format => "making the file system",
        Step::Check => "checking the file system",
        Step::CreateMount => "preparing the mount",
        Step::AttachMount => "attaching the mount",
        Step::MakeTarget => "making the target",
        Step::RemoveTarget => "removing the target",
        Step::Unmount => "unmounting",
        Step::Sync => "writing back what is not on the disk yet",
        Step::Grow => "growing the file system",
        Step::ReadMountTable => "reading the mount table",
        Step::Stat => "asking the file system for its numbers",
        Step::ToolDeadline => "running a tool, which took too long and was ended",
        Step::Runner => "starting the process that runs tools",
        Step::LogPage => "reading the disk's log page",
        Step::ResolvePath => "walking to the path",
    };
    let how = match (failed.errno, failed.tool) {
        (Some(errno), _) => format!(": {}", std::io::Error::from_raw_os_error(errno.get())),
        (None, Some(ToolEnd::Exited(status))) => format!(": the tool ended with status {status}"),
        // The kernel sends SIGKILL to the largest process of a container that is out of memory.
        (None, Some(ToolEnd::Signalled(signal))) if signal.get() == SIGKILL => format!(
            ": the tool was ended by signal {signal}; when that comes again and nobody sent it, raise the memory limit of the mount-helper's container"
        ),
        (None, Some(ToolEnd::Signalled(signal))) => {
            format!(": the tool was ended by signal {signal}")
        }
        (None, None) => String::new(),
    };
    if let Some(why) = why_not_grown(failed) {
        return format!(
            "{doing} failed{how}: {why}; it keeps its size, and the volume stays usable"
        );
    }
    if let Some(node) = failed.node {
        return format!(
            "{doing} failed{how}: its node in /dev belongs to {node}, and the mount-helper is in the group that the node's disks had when it \
             started; restart the mount-helper where that has changed, or let a udev rule give disks a group and mode 0660"
        );
    }
    let details = match (failed.step, failed.tool) {
        // What a file system says about a mount goes to the kernel's log.
        (Step::CreateMount, _) => {
            "it is tried again with the next request, `dmesg` on the node has the kernel's reason"
        }
        // The checker did not do its work, and a further run may end the same way.
        (Step::Check, Some(ToolEnd::Exited(_))) => {
            "this says nothing about the state of the file system, the mount-helper's log has the tool's words"
        }
        _ => "it is tried again with the next request, the mount-helper's log has the details",
    };
    format!("{doing} failed{how}; {details}")
}

#[cfg(test)]
mod tests;
