//! The mount-helper's answers.

use std::num::{NonZeroI32, NonZeroU8};

use prost::Message as _;

use crate::closed::closed_enum;
use crate::codec::{Wire, message, one_of, same_on_wire, values};
use crate::malformed::{bounded, required};
use crate::{Challenge, Malformed, Refusal, Refused, VolumeId, pb};

// Messages whose fields have no other type on the wire; [`Reply::decode`] checks their bounds.
pub use crate::pb::{Done, Expanded, LogPage, Node, Staged, Usage, Welcome};

/// Entries in a list of the inventory.
const INVENTORY_LIMIT: usize = 256;
/// The kernel's MAX_ERRNO.
const ERRNO_LIMIT: i32 = 4095;
/// Bytes in the text of a release.
const RELEASE_LIMIT: usize = 64;
/// Wider settings, and bytes in each.
const WIDER_LIMIT: usize = 32;
const SETTING_LIMIT: usize = 256;
/// Hexadecimal digits of a SHA-256 digest.
const DIGEST_LENGTH: usize = 64;
/// Bytes in a log page; page 0xD0 has 4096.
const LOG_PAGE_LIMIT: usize = 4096;
/// Signal numbers end at 64.
const SIGNAL_LIMIT: i32 = 64;
/// Permission bits, including set-user-id, set-group-id and sticky.
const MODE_LIMIT: u32 = 0o7777;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The id of the request.
    pub id: u64,
    /// The result.
    pub outcome: Outcome,
}

one_of! {
    /// The closed list of answers.
    Outcome mirrors reply::Result {
        /// Answer to Hello.
        Welcome,
        /// Answer to a Hello with a nonce.
        Challenge,
        /// Answer to Stage.
        Staged,
        /// Answer to Unstage, PublishFilesystem, PublishBlock and Unpublish.
        Done,
        /// Answer to Expand.
        Expanded,
        /// Answer to Stats.
        Usage,
        /// Answer to NvmeStatistics.
        LogPage,
        /// Answer to Inspect.
        Inventory,
        /// Answer to Held.
        Holding,
        /// The policy or the facts forbid the request.
        Refused,
        /// A step failed; a retry may succeed.
        Failed,
        ;
        /// The operation still ran when the caller's wait had passed; a repeated request joins it.
        Pending,
    }
}

same_on_wire! {
    Welcome checked by check_welcome,
    Staged,
    Done,
    Expanded,
    Usage,
    LogPage checked by check_log_page,
}

fn check_welcome(welcome: &Welcome) -> Result<(), Malformed> {
    let Welcome { version, release, policy_digest, wider, .. } = welcome;
    bounded(release.len(), RELEASE_LIMIT, "release")?;
    bounded(wider.len(), WIDER_LIMIT, "wider")?;
    let printable = |text: &String| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    for setting in wider {
        bounded(setting.len(), SETTING_LIMIT, "wider")?;
    }
    let hexadecimal = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    for (valid, field) in [
        (printable(release), "release"),
        (wider.iter().all(printable), "wider"),
        (
            policy_digest.len() == DIGEST_LENGTH && policy_digest.bytes().all(hexadecimal),
            "policy_digest",
        ),
        (*version != 0, "version"),
    ] {
        if !valid {
            return Err(Malformed::Invalid { field });
        }
    }
    Ok(())
}

fn check_inventory(inventory: &Inventory) -> Result<(), Malformed> {
    bounded(inventory.volumes.len(), INVENTORY_LIMIT, "volumes")?;
    bounded(inventory.operations.len(), INVENTORY_LIMIT, "operations")
}

fn check_log_page(answer: &LogPage) -> Result<(), Malformed> {
    bounded(answer.page.len(), LOG_PAGE_LIMIT, "page")
}

message! {
    /// The answer to Inspect: one page of the volumes and operations that the helper holds.
    #[derive(Default)]
    Inventory, checked by (check_inventory) {
        /// Volumes from the requested position on.
        volumes: Vec<HeldVolume> = volumes,
        operations: Vec<RunningOperation> = operations,
        /// Further volumes follow on the next page.
        more: bool = more,
    }
}

message! {
    /// A place where a volume is staged or published.
    HeldVolume {
        volume: VolumeId = volume_id,
        path @ Look [] = path,
        read_only: bool = read_only,
        /// Staged (true) or published.
        staged: bool = staged,
        /// The disk has no serial and was identified by the device name that EC2 was given.
        by_name: bool = by_name,
    }
}

message! {
    /// The answer to Held.
    Holding {
        holder: Holder = holder,
        /// The number of the request.
        question: u64 = question,
        /// Whether the promise stands for the attachment, and for half a minute more at least.
        promised: bool = promised,
    }
}

closed_enum! {
    /// What holds a volume's disk.
    Holder mirrors Holder, "holder" {
        /// The disk is there, and nothing does.
        Nothing => "nothing",
        /// No disk of the volume is there.
        NoDisk => "no-disk",
        /// A file system that is mounted where volumes are staged and published.
        Mount => "mount",
        /// A mount at another place.
        MountElsewhere => "mount-elsewhere",
        /// A raw publication.
        Publication => "publication",
        /// Another block device that is built on the disk.
        BlockDevice => "block-device",
        /// An exclusive claim: a mount out of sight, swap, or a program.
        Claim => "claim",
    }
}

message! {
    RunningOperation {
        volume: VolumeId = volume_id,
        kind: OperationKind = kind,
        /// How long the operation has run, in milliseconds.
        running_ms: u64 = running_ms,
    }
}

values! {
    OperationKind, i32: |wire| Self::from_wire(wire)?, |value| value.to_wire();
    Holder, i32: |wire| Self::from_wire(wire)?, |value| value.to_wire();
}

closed_enum! {
    /// The operation that runs on a volume.
    OperationKind mirrors OperationKind, "kind" {
        Stage => "stage",
        Unstage => "unstage",
        Publish => "publish",
        Unpublish => "unpublish",
        Expand => "expand",
        Stats => "stats",
    }
}

closed_enum! {
    /// The step of an operation that failed.
    Step mirrors Step, "step" {
        FindDevice => "find-device",
        ReadDevice => "read-device",
        /// Opening the disk exclusively for this operation.
        ClaimDevice => "claim-device",
        Format => "format",
        Check => "check",
        /// Making the detached mount (fsopen, fsconfig, fsmount, open_tree).
        CreateMount => "create-mount",
        /// Attaching the mount (move_mount, mount_setattr).
        AttachMount => "attach-mount",
        MakeTarget => "make-target",
        RemoveTarget => "remove-target",
        Unmount => "unmount",
        /// Writing back the kernel's cached data.
        Sync => "sync",
        Grow => "grow",
        ReadMountTable => "read-mount-table",
        /// Reading the statistics of a file system.
        Stat => "stat",
        /// The tool exceeded its deadline and was ended.
        ToolDeadline => "tool-deadline",
        /// The runner process was not available.
        Runner => "runner",
        LogPage => "log-page",
        ResolvePath => "resolve-path",
    }
}

/// A step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The step.
    pub step: Step,
    /// The error of the system call, errno(3), 1 to 4095; `None` when no system call failed.
    pub errno: Option<NonZeroI32>,
    /// How the tool ended, when a tool failed.
    pub tool: Option<ToolEnd>,
    /// Owner and mode of the disk's node, when the node may not be opened; otherwise `None`, as
    /// also from a helper of the previous release.
    pub node: Option<Node>,
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} mode {:04o}", self.uid, self.gid, self.mode)
    }
}

/// How a tool ended that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEnd {
    /// The tool exited with this status.
    Exited(NonZeroU8),
    /// This signal ended the tool, 1 to 64.
    Signalled(NonZeroU8),
}

impl Failed {
    /// Creates the failure of a system call with `errno`; a number that is not an errno counts as
    /// none.
    pub fn call(step: Step, errno: i32) -> Self {
        let errno =
            NonZeroI32::new(errno).filter(|number| (1..=ERRNO_LIMIT).contains(&number.get()));
        Self { step, errno, tool: None, node: None }
    }

    /// Creates the failure of a tool.
    pub const fn tool(step: Step, end: ToolEnd) -> Self {
        Self { step, errno: None, tool: Some(end), node: None }
    }
}

impl Wire for Failed {
    type Pb = pb::Failed;

    fn read(wire: pb::Failed) -> Result<Self, Malformed> {
        if !(0..=ERRNO_LIMIT).contains(&wire.errno) {
            return Err(Malformed::Invalid { field: "errno" });
        }
        if !(0..=SIGNAL_LIMIT).contains(&wire.tool_signal) {
            return Err(Malformed::Invalid { field: "tool_signal" });
        }
        let byte = |number: i32| u8::try_from(number).ok().and_then(NonZeroU8::new);
        let tool = match (wire.tool_exit, byte(wire.tool_signal)) {
            (0, None) => None,
            (-1, Some(signal)) => Some(ToolEnd::Signalled(signal)),
            (status, None) => Some(ToolEnd::Exited(
                byte(status).ok_or(Malformed::Invalid { field: "tool_exit" })?,
            )),
            (_, Some(_)) => return Err(Malformed::Invalid { field: "tool_exit" }),
        };
        if wire.node.is_some_and(|node| node.mode > MODE_LIMIT) {
            return Err(Malformed::Invalid { field: "mode" });
        }
        Ok(Self {
            step: Step::from_wire(wire.step)?,
            errno: NonZeroI32::new(wire.errno),
            tool,
            node: wire.node,
        })
    }

    fn write(&self) -> pb::Failed {
        let (tool_exit, tool_signal) = match self.tool {
            None => (0, 0),
            Some(ToolEnd::Exited(status)) => (i32::from(status.get()), 0),
            Some(ToolEnd::Signalled(signal)) => (-1, i32::from(signal.get())),
        };
        pb::Failed {
            step: self.step.to_wire(),
            errno: self.errno.map_or(0, NonZeroI32::get),
            tool_exit,
            tool_signal,
            node: self.node,
        }
    }
}

impl From<Refusal> for Outcome {
    fn from(reason: Refusal) -> Self {
        Self::Refused(reason.into())
    }
}

impl Reply {
    /// Decodes a wire message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let wire = pb::Reply::decode(bytes).map_err(|_| Malformed::NotProtobuf)?;
        let outcome = Outcome::read(required(wire.result, "result")?)?;
        Ok(Self { id: wire.id, outcome })
    }

    /// Encodes the wire message.
    pub fn encode(&self) -> Vec<u8> {
        pb::Reply { id: self.id, result: Some(self.outcome.write()) }.encode_to_vec()
    }
}
