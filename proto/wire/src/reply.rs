//! The mount-helper's answers.

use std::num::{NonZeroI32, NonZeroU8};

use prost::Message;

use crate::closed::closed_enum;
use crate::frame::MAX_FRAME;
use crate::{Challenge, KubeletPath, Malformed, Refusal, Refused, VolumeId, pb};

mod encoding;
mod step;

// Messages whose fields have no other type on the wire; [`Reply::decode`] checks their bounds.
pub use crate::pb::{Done, Expanded, LogPage, Node, Staged, Usage, Welcome};
pub use step::Step;

/// Entries in a list of the inventory.
const INVENTORY_LIMIT: usize = 256;
/// The kernel's MAX_ERRNO.
const ERRNO_LIMIT: i32 = 4095;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The id of the request.
    pub id: u64,
    /// The result.
    pub outcome: Outcome,
}

/// The closed list of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer to Hello.
    Welcome(Welcome),
    /// Answer to a Hello with a nonce.
    Challenge(Challenge),
    /// Answer to Stage.
    Staged(Staged),
    /// Answer to Unstage, PublishFilesystem, PublishBlock and Unpublish.
    Done(Done),
    /// Answer to Expand.
    Expanded(Expanded),
    /// Answer to Stats.
    Usage(Usage),
    /// Answer to NvmeStatistics.
    LogPage(LogPage),
    /// Answer to Inspect.
    Inventory(Inventory),
    /// The policy or the facts forbid the request.
    Refused(Refused),
    /// A step failed; a retry may succeed.
    Failed(Failed),
    /// The operation still ran when the caller's wait had passed; a repeated request joins it.
    Pending,
}

/// The answer to Inspect: one page of the volumes and operations that the helper holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Volumes from the requested position on.
    pub volumes: Vec<HeldVolume>,
    /// Running operations.
    pub operations: Vec<RunningOperation>,
    /// Further volumes follow on the next page.
    pub more: bool,
}

/// A place where a volume is staged or published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The staging or target path.
    pub path: KubeletPath,
    /// The mount refuses writes.
    pub read_only: bool,
    /// Staged (true) or published.
    pub staged: bool,
    /// The disk has no serial and was identified by the device name that EC2 was given.
    pub by_name: bool,
}

/// A running operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningOperation {
    /// The volume.
    pub volume: VolumeId,
    /// The kind of operation.
    pub kind: OperationKind,
    /// How long the operation has run, in milliseconds.
    pub running_ms: u64,
}

closed_enum! {
    /// The operation that runs on a volume.
    OperationKind mirrors OperationKind, "kind" {
        /// Stage.
        Stage => "stage",
        /// Unstage.
        Unstage => "unstage",
        /// Either publish.
        Publish => "publish",
        /// Unpublish.
        Unpublish => "unpublish",
        /// Expand.
        Expand => "expand",
        /// Stats.
        Stats => "stats",
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
    #[must_use]
    pub fn call(step: Step, errno: i32) -> Self {
        let errno =
            NonZeroI32::new(errno).filter(|number| (1..=ERRNO_LIMIT).contains(&number.get()));
        Self { step, errno, tool: None, node: None }
    }

    /// Creates the failure of a tool.
    #[must_use]
    pub const fn tool(step: Step, end: ToolEnd) -> Self {
        Self { step, errno: None, tool: Some(end), node: None }
    }
}

impl Inventory {
    /// Returns one page: as many entries of `held` from `first` on as fit into a frame, and at most
    /// 64 of the operations.
    #[must_use]
    pub fn page(held: &[HeldVolume], operations: &[RunningOperation], first: u32) -> Self {
        // Each entry has its strings and the overhead of the encoding, rounded up.
        const ENTRY_OVERHEAD: usize = 64;
        let operations = operations.get(..operations.len().min(64)).unwrap_or_default().to_vec();
        let mut room = MAX_FRAME - 256 - operations.len() * ENTRY_OVERHEAD;
        let start = usize::try_from(first).unwrap_or(usize::MAX).min(held.len());
        let fitting = held[start..]
            .iter()
            .take(INVENTORY_LIMIT)
            .take_while(|entry| {
                let size = entry.path.as_str().len() + ENTRY_OVERHEAD;
                let fits = size <= room;
                room = room.saturating_sub(size);
                fits
            })
            .count();
        Self {
            volumes: held[start..start + fitting].to_vec(),
            operations,
            more: start + fitting < held.len(),
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
    ///
    /// # Errors
    /// [`Malformed`] for bytes that no correct helper sends; the connection cannot be used
    /// afterwards.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        pb::Reply::decode(bytes).map_err(|_| Malformed::NotProtobuf)?.try_into()
    }

    /// Encodes the wire message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        pb::Reply::from(self.clone()).encode_to_vec()
    }
}
