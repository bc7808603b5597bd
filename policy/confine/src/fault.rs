//! Why a process could not be confined.

use std::io;
use std::path::PathBuf;

use ebs_csi_policy::process_status::StatusError;

/// A step of the confinement that failed. The process must end: it holds more rights than its
/// policy allows.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The process has several threads already.
    #[error(
        "cannot confine a process of {0} threads: confinement must come before the first thread is started"
    )]
    ManyThreads(u32),
    /// `/proc/self/status` could not be read.
    #[error("cannot read /proc/self/status: mount /proc in the container")]
    Status(#[source] io::Error),
    /// `/proc/self/status` could not be parsed.
    #[error("cannot understand /proc/self/status")]
    StatusText(#[from] StatusError),
    /// A resource limit was refused.
    #[error("cannot set the resource limit {0}")]
    Limit(&'static str, #[source] io::Error),
    /// A capability that the profile needs is not granted.
    #[error("{0} is needed and not granted: add it to the container's capabilities")]
    CapabilityMissing(&'static str),
    /// A capability set could not be changed.
    #[error(
        "cannot set the {0} capabilities: the process must be started with CAP_SETPCAP, or without any capability"
    )]
    Capabilities(&'static str, #[source] io::Error),
    /// The user or the groups could not be changed.
    #[error(
        "cannot become {what} {id}: start the process as root with CAP_SETUID and CAP_SETGID, or as that user"
    )]
    Identity {
        /// `user`, `group` or `groups`.
        what: &'static str,
        /// The number.
        id: u32,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The process was started as a user that its policy does not know.
    #[error("started as user {found}: start the process as root or as user {wanted}")]
    WrongUser {
        /// The policy's user.
        wanted: u32,
        /// The user of the process.
        found: u32,
    },
    /// A prctl(2) operation was refused.
    #[error("cannot set {0}")]
    Control(&'static str, #[source] io::Error),
    /// The process stays in the namespaces in which it was started.
    #[error("cannot make namespaces apart from the node's (unshare)")]
    Namespaces(#[source] io::Error),
    /// The descriptors that the process keeps could not be completed.
    #[error("cannot copy a descriptor")]
    Descriptors(#[source] io::Error),
    /// The process writes to a descriptor that its filter would refuse.
    #[error("descriptor {0} is beyond those that the profile keeps")]
    Descriptor(i32),
    /// The kernel's Landlock is older than the profile's floor.
    #[error(
        "the kernel offers Landlock ABI {found}, {profile_floor} is needed: use a kernel with Landlock enabled, or allow to go without it explicitly"
    )]
    LandlockMissing {
        /// The kernel's ABI; 0: none.
        found: u8,
        /// The floor.
        profile_floor: u8,
    },
    /// A Landlock rule was refused.
    #[error("cannot apply Landlock: {0}")]
    Landlock(String),
    /// A place of a rule does not exist or cannot be opened.
    #[error("cannot open {place} for a Landlock rule")]
    Place {
        /// The place, as in the policy.
        place: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A setting names a place that would open more of the machine than a setting may.
    #[error(
        "{setting}: {} leads to {} and would open it: {why}; give a directory of its own",
        path.display(),
        resolved.display()
    )]
    TooWide {
        /// The flag or environment variable.
        setting: String,
        /// Its value.
        path: PathBuf,
        /// What the value leads to, without links.
        resolved: PathBuf,
        /// What the place has.
        why: &'static str,
    },
    /// The policy names a system call that this build does not know.
    #[error("the policy names the system call {0}, which this build does not know")]
    UnknownCall(&'static str),
    /// The profile does not have this choice of system calls.
    #[error("the profile has no choice {0}")]
    UnknownChoice(&'static str),
    /// A filter could not be built or installed.
    #[error("cannot install the system call filter: {0}")]
    Filter(String),
    /// The kernel's report differs from the profile.
    #[error("the kernel does not confirm the confinement: {0}")]
    NotConfirmed(String),
    /// The policy does not have this tool.
    #[error("the policy has no tool {0}")]
    UnknownTool(&'static str),
}

impl Fault {
    /// EX_NOPERM (sysexits.h): the process could not be confined.
    pub const EXIT: u8 = 77;
    /// EX_CONFIG (sysexits.h): a setting is to be changed.
    pub const TOO_WIDE: u8 = 78;

    /// Returns the exit status of a process that ends with this fault.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::TooWide { .. } => Self::TOO_WIDE,
            _ => Self::EXIT,
        }
    }
}
