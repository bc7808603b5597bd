//! What the mount-helper answers.

use std::num::{NonZeroI32, NonZeroU8};

use prost::Message;

use crate::closed::closed_enum;
use crate::frame::MAX_FRAME;
use crate::{KubeletPath, Malformed, Refusal, Refused, Step, VolumeId, pb};

mod encoding;

/// Entries in a list of the inventory.
const INVENTORY_LIMIT: usize = 256;
/// The kernel's MAX_ERRNO.
const ERRNO_LIMIT: i32 = 4095;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The id of the request.
    pub id: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// The closed list of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To Hello.
    Welcome(Welcome),
    /// To Stage.
    Staged(Staged),
    /// To Unstage, PublishFilesystem, PublishBlock and Unpublish.
    Done(Done),
    /// To Expand.
    Expanded(Expanded),
    /// To Stats.
    Usage(Usage),
    /// To NvmeStatistics.
    LogPage(LogPage),
    /// To Inspect.
    Inventory(Inventory),
    /// The policy or the facts forbid it.
    Refused(Refused),
    /// Something that should have worked did not; a retry may.
    Failed(Failed),
    /// Still running when the caller's wait had passed; a repeated request joins it.
    Pending,
}

/// To Hello: what the helper is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that this connection speaks from now on.
    pub version: u32,
    /// The helper's release: 1 to 64 printable ASCII characters.
    pub release: String,
    /// SHA-256 of the policy that is enforced: 64 lower-case hexadecimal digits.
    pub policy_digest: String,
    /// The policy recognises simulated devices.
    pub sandbox: bool,
    /// Landlock's version in the helper's kernel, 0 for none; `None` from a helper of the release
    /// before.
    pub landlock: Option<u32>,
}

/// To Stage: what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// The disk was mounted there before, as asked: nothing was done.
    pub already: bool,
    /// A file system was made.
    pub formatted: bool,
    /// A checker ran.
    pub checked: bool,
    /// The checker repaired something.
    pub repaired: bool,
    /// The file system was grown to the size of the disk.
    pub grown: bool,
    /// Size of the disk, in bytes.
    pub device_bytes: u64,
    /// Mounted without the check of what was made elsewhere, because nobody said where it was made.
    pub untold: bool,
    /// The journal was replayed before the mount.
    pub replayed: bool,
}

/// An operation without further result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// It had been done before.
    pub already: bool,
    /// Unstage alone: files that are open in another mount namespace keep the file system; it was
    /// written back and made read-only.
    pub copied: bool,
}

/// To Expand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// Size of the disk, in bytes.
    pub device_bytes: u64,
    /// Size of the file system, in bytes; 0 for a raw block volume.
    pub filesystem_bytes: u64,
}

/// To Stats. For a raw block volume only `total_bytes` is set and `block` is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// A raw block volume.
    pub block: bool,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that an unprivileged user can still take.
    pub available_bytes: u64,
    /// Inodes in all; 0 when the file system does not count them.
    pub total_inodes: u64,
    /// Inodes in use.
    pub used_inodes: u64,
    /// Inodes that can still be taken.
    pub available_inodes: u64,
    /// After errors the kernel takes no more writes.
    pub turned_read_only: bool,
    /// After errors the kernel takes nothing at all.
    pub shut_down: bool,
    /// Errors that the kernel has met in the file system since it was last checked; 0 where it does not count them.
    pub errors: u64,
}

/// To NvmeStatistics: log page 0xD0 as the device gave it, at most 4096 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The page.
    pub page: Vec<u8>,
}

/// To Inspect: one page of what the helper holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Volumes from the asked-for position on.
    pub volumes: Vec<HeldVolume>,
    /// Running operations.
    pub operations: Vec<RunningOperation>,
    /// Volumes follow behind these.
    pub more: bool,
}

/// A place where a volume is staged or published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The staging or target path.
    pub path: KubeletPath,
    /// It cannot be written there.
    pub read_only: bool,
    /// Staged (true) or published.
    pub staged: bool,
    /// Its disk has no serial, and was taken by the name that EC2 was told.
    pub by_name: bool,
}

/// An operation that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningOperation {
    /// The volume.
    pub volume: VolumeId,
    /// What runs.
    pub kind: OperationKind,
    /// For how long, in milliseconds.
    pub running_ms: u64,
}

closed_enum! {
    /// What runs on a volume.
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

/// Something that should have worked did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What was being done.
    pub step: Step,
    /// The error of the system call, errno(3), 1 to 4095; `None` when no system call failed.
    pub errno: Option<NonZeroI32>,
    /// How the tool ended, when a tool failed.
    pub tool: Option<ToolEnd>,
    /// Whose the disk's node is, when it may not be opened; `None` else, and from a helper of the
    /// release before.
    pub node: Option<Node>,
}

/// Owner and permission bits of a disk's node in `/dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits, 0 to 0o7777.
    pub mode: u32,
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} mode {:04o}", self.uid, self.gid, self.mode)
    }
}

/// How a tool ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEnd {
    /// By itself, with this status.
    Exited(NonZeroU8),
    /// By this signal, 1 to 64.
    Signalled(NonZeroU8),
}

impl Failed {
    /// A system call failed with `errno`; anything that is not an errno counts as none.
    #[must_use]
    pub fn call(step: Step, errno: i32) -> Self {
        let errno =
            NonZeroI32::new(errno).filter(|number| (1..=ERRNO_LIMIT).contains(&number.get()));
        Self {
            step,
            errno,
            tool: None,
            node: None,
        }
    }

    /// A tool ended badly.
    #[must_use]
    pub const fn tool(step: Step, end: ToolEnd) -> Self {
        Self {
            step,
            errno: None,
            tool: Some(end),
            node: None,
        }
    }
}

impl Inventory {
    /// One page: as many of `held` from `first` on as a frame takes, beside the operations (at most 64 of them).
    #[must_use]
    pub fn page(held: &[HeldVolume], operations: &[RunningOperation], first: u32) -> Self {
        // Each entry: its strings and what the encoding adds to them, rounded up.
        const ENTRY_OVERHEAD: usize = 64;
        let operations = operations
            .get(..operations.len().min(64))
            .unwrap_or_default()
            .to_vec();
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
    /// Reads a message of the wire.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that no correct helper sends; the connection is of no further use then.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        pb::Reply::decode(bytes)
            .map_err(|_| Malformed::NotProtobuf)?
            .try_into()
    }

    /// Writes the message of the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        pb::Reply::from(self.clone()).encode_to_vec()
    }
}
