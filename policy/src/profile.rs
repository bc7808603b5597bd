//! What each process may do once it has started.
//!
//! `ebs_csi_confine` makes a process what its profile says, and the auditor compares a live process with it.

use crate::Value;
use crate::tool::{Tool, ToolId};

/// Everything about one kind of process.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// `controller`, `node-lifecycle`, `launcher`, `router`, `node-agent`, `supervisor`, `broker`, `directories`, `opener`, `runner`, `tool`.
    pub name: &'static str,
    /// What the process does.
    pub about: &'static str,
    /// Who it is.
    pub identity: Identity,
    /// The capabilities that it may hold; no other is in any of its sets.
    pub capabilities: &'static [HeldCapability],
    /// Resource limits, both soft and hard.
    pub limits: &'static [Limit],
    /// Landlock.
    pub landlock: Landlock,
    /// The system calls that are answered; any other ends the process.
    pub calls: &'static [CallRule],
}

/// User and groups of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Real, effective, saved and file-system user.
    pub uid: u32,
    /// Real, effective, saved and file-system group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
    /// A process that is started under another uid than 0 may stay under it, with its groups.
    pub other_unprivileged_uid: bool,
    /// The groups are those that own the machine's disks, and the user is 0 where root alone may open
    /// them; what stands here is for a machine that shows no disk.
    pub opens_disks: bool,
    /// Why this identity.
    pub why: &'static str,
}

/// A capability by its kernel name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// `CAP_…`.
    pub name: &'static str,
    /// Its number in capabilities(7).
    pub number: u8,
}

impl Capability {
    /// Its bit in the sets of `/proc/PID/status`.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self.number
    }
}

/// A capability that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldCapability {
    /// Which.
    pub capability: Capability,
    /// In the effective set all the time; otherwise only raised around the calls that need it.
    pub effective: bool,
    /// The process also works where the host does not grant it.
    pub optional: bool,
    /// Why it is held.
    pub why: &'static str,
}

/// A resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Which.
    pub resource: Resource,
    /// Soft and hard limit.
    pub value: u64,
    /// Why.
    pub why: &'static str,
}

/// A resource of setrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// RLIMIT_CORE, in bytes.
    Core,
    /// RLIMIT_NOFILE, a number of descriptors.
    Descriptors,
}

/// Landlock rules of a process.
#[derive(Clone, Copy, Debug)]
pub struct Landlock {
    /// The oldest ABI of the kernel that will do.
    pub floor: u8,
    /// Below the floor the process does not start, unless it was told to go without.
    pub floor_is_hard: bool,
    /// Rights on files.
    pub files: Files,
    /// TCP sockets (ABI 4).
    pub tcp: Tcp,
    /// Whom it cannot reach (ABI 6).
    pub scopes: &'static [Scope],
    /// Why.
    pub why: &'static str,
}

/// Rights on files.
#[derive(Clone, Copy, Debug)]
pub enum Files {
    /// No right is handled: a process that mounts cannot have any.
    Free,
    /// The parent's domain holds, no own layer is added.
    Inherited,
    /// Every right that the kernel knows is denied but for these.
    Listed(&'static [FileRule]),
}

/// Rights beneath a place.
#[derive(Clone, Copy, Debug)]
pub struct FileRule {
    /// Where.
    pub place: FilePlace,
    /// Which.
    pub rights: &'static [FileRight],
    /// The process also starts when the place is not there.
    pub optional: bool,
    /// Why.
    pub why: &'static str,
}

/// A place of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// This path.
    Path(&'static str),
    /// What the process itself names by this word when it confines itself.
    Named(&'static str),
}

/// A right of landlock(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRight {
    /// Start a program.
    Execute,
    /// Open a file for reading.
    ReadFile,
    /// List a directory.
    ReadDir,
    /// Open a file for writing.
    WriteFile,
    /// Make a directory.
    MakeDir,
    /// Make a regular file.
    MakeReg,
    /// Make a socket.
    MakeSock,
    /// Remove a directory.
    RemoveDir,
    /// Remove anything else.
    RemoveFile,
    /// ioctl(2) on a device (ABI 5).
    IoctlDev,
}

/// TCP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tcp {
    /// Neither bind nor connect. What listens already goes on.
    Denied,
    /// Both.
    Free,
}

/// Whom a process cannot reach outside its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Listeners on abstract unix sockets.
    AbstractUnixSocket,
    /// Processes, by a signal.
    Signal,
}

/// A rule about one system call.
#[derive(Clone, Copy, Debug)]
pub struct CallRule {
    /// The call's name.
    pub call: &'static str,
    /// Other machines do not have it.
    pub only_x86_64: bool,
    /// When the rule holds.
    pub condition: Condition,
    /// What the call gets.
    pub answer: Answer,
    /// Why.
    pub why: &'static str,
}

/// A condition on an argument of a call. Only the lower 32 bits of the argument are compared: the kernel looks at no
/// more of the arguments that the policy names.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    /// None.
    Always,
    /// The argument, masked, is one of these.
    OneOf {
        /// From 0.
        argument: u8,
        /// The bits that are compared.
        mask: u64,
        /// The values.
        values: &'static [Value],
    },
    /// The argument is none of these. The mask is always that of all 32 bits.
    NoneOf {
        /// From 0.
        argument: u8,
        /// The bits that are compared.
        mask: u64,
        /// The values.
        values: &'static [Value],
    },
    /// All of these bits are set.
    HasBits {
        /// From 0.
        argument: u8,
        /// The bits.
        bits: Value,
    },
    /// None of these bits is set.
    LacksBits {
        /// From 0.
        argument: u8,
        /// The bits.
        bits: Value,
    },
    /// The argument is the number of the calling process.
    Itself {
        /// From 0.
        argument: u8,
    },
}

/// What a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel executes it.
    Allow,
    /// This error, without being executed.
    Errno(Value<i32>),
}

mod compiled {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/profiles.rs"));
}

/// The CSI controller.
pub const CONTROLLER: &Profile = &compiled::CONTROLLER;
/// The Kubernetes side of a node's death and return.
pub const NODE_LIFECYCLE: &Profile = &compiled::NODE_LIFECYCLE;
/// The driver's entry point, once it has started the processes of a mode.
pub const LAUNCHER: &Profile = &compiled::LAUNCHER;
/// The one socket of mode `all`.
pub const ROUTER: &Profile = &compiled::ROUTER;
/// The CSI node service.
pub const NODE_AGENT: &Profile = &compiled::NODE_AGENT;
/// Process 1 of the mount-helper.
pub const SUPERVISOR: &Profile = &compiled::SUPERVISOR;
/// The mount-helper's process that mounts.
pub const BROKER: &Profile = &compiled::BROKER;
/// The mount-helper's process that makes and removes target directories.
pub const DIRECTORIES: &Profile = &compiled::DIRECTORIES;
/// The mount-helper's process that opens disks.
pub const OPENER: &Profile = &compiled::OPENER;
/// The mount-helper's process that runs a tool. It inherits the supervisor's confinement and adds none.
pub const RUNNER: &Profile = &compiled::RUNNER;
/// A tool, whichever it is; [`tool`] adds what depends on it.
pub const TOOL: &Profile = &compiled::TOOL;

/// Every profile.
pub const ALL: [&Profile; 11] = [
    CONTROLLER,
    NODE_LIFECYCLE,
    LAUNCHER,
    ROUTER,
    NODE_AGENT,
    SUPERVISOR,
    BROKER,
    DIRECTORIES,
    OPENER,
    RUNNER,
    TOOL,
];

/// The profile of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Profile> {
    ALL.into_iter().find(|profile| profile.name == name)
}

/// A tool's profile: [`TOOL`] and the row of `tools.toml` with its memory limits and pretended commands.
#[derive(Clone, Copy, Debug)]
pub struct ToolProfile {
    /// What every tool is confined to.
    pub profile: &'static Profile,
    /// What this one gets.
    pub tool: &'static Tool,
}

/// The profile of a tool. `None` only when the enum and `tools.toml` disagree, which a test excludes.
#[must_use]
pub fn tool(id: ToolId) -> Option<ToolProfile> {
    id.tool().map(|tool| ToolProfile {
        profile: TOOL,
        tool,
    })
}
