//! What each process may do once it has started.
//!
//! `ebs_csi_confine` confines a process to its profile, and the auditor compares a live process
//! with the profile.

use crate::Value;

mod block_nodes;
pub mod deviation;
pub mod environment;
pub mod process;
pub mod process_status;
pub mod socket_file;

pub use block_nodes::{BlockNodes, NodeOwner};

/// Everything about one kind of process.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// `controller`, `node-lifecycle`, `launcher`, `router`, `node-agent`, `supervisor`, `broker`,
    /// `directories`, `opener`, `relay`, `runner`, `tool`.
    pub name: &'static str,
    /// What the process does.
    pub about: &'static str,
    /// The user and groups of the process.
    pub identity: Identity,
    /// The capabilities that the process may hold; its capability sets contain no other.
    pub capabilities: &'static [HeldCapability],
    /// Resource limits, both soft and hard.
    pub limits: &'static [Limit],
    /// The process writes only to descriptors below this number, which are open before the filter
    /// is installed and stay what they are; 0 for a process that writes to others, too.
    pub kept_descriptors: u32,
    /// The flags with the addresses at which the process listens, or whose connections it serves.
    pub listeners: &'static [Listener],
    /// The Landlock rules of the process.
    pub landlock: Landlock,
    /// The system calls with an answer; any other call ends the process.
    pub calls: &'static [CallRule],
    /// Sets of further calls, each of which the process has only when its command line chooses it.
    pub choices: &'static [Choice],
}

/// System calls that a process may choose.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The name by which the process chooses the calls.
    pub name: &'static str,
    /// The calls that this adds.
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
    /// A process that starts under a uid other than 0 may keep that uid and its groups.
    pub other_unprivileged_uid: bool,
    /// The groups are those that own the machine's disks, and the user is 0 where root alone may
    /// open the disks. The values here are for a machine that shows no disk.
    pub opens_disks: bool,
    /// The reason for this identity.
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

impl Profile {
    /// Returns the capability of this name, such as `CAP_SYS_ADMIN`, if the process holds it.
    #[must_use]
    pub fn capability(&self, name: &str) -> Option<Capability> {
        let mut held = self.capabilities.iter().map(|held| held.capability);
        held.find(|capability| capability.name == name)
    }
}

impl Capability {
    /// Its bit in the sets of `/proc/PID/status`.
    pub const fn bit(self) -> u64 {
        1 << self.number
    }
}

/// A capability that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldCapability {
    /// The capability.
    pub capability: Capability,
    /// The capability is always in the effective set; otherwise it is only raised around the calls
    /// that need it.
    pub effective: bool,
    /// The process also works where the host does not grant the capability.
    pub optional: bool,
    /// The reason for holding the capability.
    pub why: &'static str,
    /// Why it stays though no process was seen to be granted it (`policy/observed`).
    pub kept: Option<&'static str>,
}

/// A resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The resource.
    pub resource: Resource,
    /// Soft and hard limit.
    pub value: u64,
    /// The reason.
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

/// A listener that is bound before the process confines itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The flag that has the address.
    pub flag: &'static str,
    /// The process that has the listener and hands over the connections; `None` when the process
    /// has the listener itself.
    pub accepted_by: Option<&'static str>,
    /// The reason.
    pub why: &'static str,
}

/// Landlock rules of a process.
#[derive(Clone, Copy, Debug)]
pub struct Landlock {
    /// The lowest Landlock ABI of the kernel that suffices.
    pub floor: u8,
    /// Below the floor the process does not start, unless a flag permits a start without Landlock.
    pub floor_is_hard: bool,
    /// Rights on files.
    pub files: Files,
    /// TCP sockets (ABI 4).
    pub tcp: Tcp,
    /// What the process cannot reach outside its domain (ABI 6).
    pub scopes: &'static [Scope],
    /// The reason.
    pub why: &'static str,
}

/// Rights on files.
#[derive(Clone, Copy, Debug)]
pub enum Files {
    /// No right is handled: Landlock does not let a process with rights on files mount anything.
    Free,
    /// The parent's domain applies; the process adds no layer of its own.
    Inherited,
    /// Every right that the kernel knows is denied, except for these.
    Listed(&'static [FileRule]),
}

impl Files {
    /// Returns the rules; none where no layer lists any.
    #[must_use]
    pub const fn rules(self) -> &'static [FileRule] {
        if let Self::Listed(rules) = self { rules } else { &[] }
    }
}

/// Rights beneath a place.
#[derive(Clone, Copy, Debug)]
pub struct FileRule {
    /// The place.
    pub place: FilePlace,
    /// The rights.
    pub rights: &'static [FileRight],
    /// The process also starts when the place does not exist.
    pub optional: bool,
    /// The reason.
    pub why: &'static str,
}

/// A place of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// This path.
    Path(&'static str),
    /// A path that the process supplies under this name when it confines itself.
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
    /// Connect to a unix socket that a process outside the domain has bound (ABI 9).
    ResolveUnix,
}

/// TCP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tcp {
    /// Neither bind nor connect. Sockets that already listen keep working.
    Denied,
    /// Bind and connect.
    Free,
}

/// What a process cannot reach outside its Landlock domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Listeners on abstract unix sockets.
    AbstractUnixSocket,
    /// Other processes, by a signal.
    Signal,
}

/// A rule about one system call.
#[derive(Clone, Copy, Debug)]
pub struct CallRule {
    /// The call's name.
    pub call: &'static str,
    /// The call exists on x86-64 alone.
    pub only_x86_64: bool,
    /// The condition under which the rule holds.
    pub condition: Condition,
    /// The answer to the call.
    pub answer: CallAnswer,
    /// The reason.
    pub why: &'static str,
    /// Why the rule stays though not every process with it was seen to make the call
    /// (`policy/observed`).
    pub kept: Option<&'static str>,
}

/// A condition on arguments of a call.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    /// No condition.
    Always,
    /// The argument, masked, is one of these.
    OneOf {
        /// Index of the argument, from 0.
        argument: u8,
        /// The bits that are compared: all 64 of an argument that the kernel reads in full.
        mask: u64,
        /// The values.
        values: &'static [Value],
        /// Another argument that must be one of some values, too: its index, mask and values.
        and: Option<(u8, u64, &'static [Value])>,
    },
    /// The argument is none of these.
    NoneOf {
        /// Index of the argument, from 0.
        argument: u8,
        /// The bits that are compared: all that the kernel reads.
        mask: u64,
        /// The values.
        values: &'static [Value],
    },
    /// All of these bits are set.
    HasBits {
        /// Index of the argument, from 0.
        argument: u8,
        /// The bits.
        bits: Value,
    },
    /// None of these bits is set in its argument.
    LacksBits(&'static [(u8, Value)]),
    /// The argument is the process id of the caller.
    Itself {
        /// Index of the argument, from 0.
        argument: u8,
    },
    /// The argument is a descriptor below this number.
    Below {
        /// Index of the argument, from 0.
        argument: u8,
        /// [`Profile::kept_descriptors`].
        limit: u32,
    },
    /// The argument is a descriptor that is not below this number.
    NotBelow {
        /// Index of the argument, from 0.
        argument: u8,
        /// [`Profile::kept_descriptors`].
        limit: u32,
    },
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// The kernel executes it.
    Allow,
    /// The call returns this error without being executed.
    Errno(Value<i32>),
}

mod compiled {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/profiles.rs"));
}

/// The CSI controller.
pub const CONTROLLER: &Profile = &compiled::CONTROLLER;
/// The process that acts on a node's death and return through the Kubernetes API.
pub const NODE_LIFECYCLE: &Profile = &compiled::NODE_LIFECYCLE;
/// The driver's entry point, after it has started the processes of a mode.
pub const LAUNCHER: &Profile = &compiled::LAUNCHER;
/// The router, which serves the one socket of mode `all`.
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
/// The mount-helper's process that accepts connections over vsock.
pub const RELAY: &Profile = &compiled::RELAY;
/// The mount-helper's process that runs a tool. It inherits the supervisor's confinement and adds
/// none.
pub const RUNNER: &Profile = &compiled::RUNNER;
/// Any tool; the rows of `tools.toml` have what differs between tools.
pub const TOOL: &Profile = &compiled::TOOL;

/// Every profile.
pub const ALL: [&Profile; 12] = [
    CONTROLLER,
    NODE_LIFECYCLE,
    LAUNCHER,
    ROUTER,
    NODE_AGENT,
    SUPERVISOR,
    BROKER,
    DIRECTORIES,
    OPENER,
    RELAY,
    RUNNER,
    TOOL,
];

/// Returns the profile of that name.
pub fn named(name: &str) -> Option<&'static Profile> {
    ALL.into_iter().find(|profile| profile.name == name)
}
