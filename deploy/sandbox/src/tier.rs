//! The kinds of the driver's processes, and how the processes of one helper are told apart.

use ebs_csi_policy::profile::{self, Profile};

use crate::procfs::process_status::numbers;
use crate::procfs::process_table;

/// The kinds of process that `deploy/docs/architecture.md` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Calls EC2.
    Controller,
    /// Serves kubelet.
    NodeAgent,
    /// First process of the helper.
    Supervisor,
    /// Mounts.
    Broker,
    /// Makes and removes target directories.
    Directories,
    /// Opens disks.
    Opener,
    /// Runs one tool for one job.
    Runner,
    /// Parses a disk.
    Tool,
}

/// The tiers of the helper that run all the time.
pub(crate) const PARTS: [Tier; 4] =
    [Tier::Supervisor, Tier::Broker, Tier::Directories, Tier::Opener];

impl Tier {
    /// The tiers whose processes run all the time.
    pub const ALWAYS_RUNNING: [Self; 6] = [
        Self::Controller,
        Self::NodeAgent,
        Self::Supervisor,
        Self::Broker,
        Self::Directories,
        Self::Opener,
    ];

    /// Returns the profile of the tier's processes.
    pub(crate) fn profile(self) -> &'static Profile {
        match self {
            Self::Controller => profile::CONTROLLER,
            Self::NodeAgent => profile::NODE_AGENT,
            Self::Supervisor => profile::SUPERVISOR,
            Self::Broker => profile::BROKER,
            Self::Directories => profile::DIRECTORIES,
            Self::Opener => profile::OPENER,
            Self::Runner => profile::RUNNER,
            Self::Tool => profile::TOOL,
        }
    }

    /// Returns the tier's name in tables.
    pub fn name(self) -> &'static str {
        self.profile().name
    }
}

/// Returns whether the helper whose processes are `tree` has all of [`PARTS`], each with a
/// seccomp filter.
pub(crate) fn helper_is_confined(tree: &[i32]) -> bool {
    let Some(supervisor) = tree.first() else {
        return false;
    };
    let confined = |tier: Tier| {
        tree.iter().any(|pid| {
            tier_of(*pid, *supervisor) == Some(tier)
                && std::fs::read_to_string(format!("/proc/{pid}/status"))
                    .is_ok_and(|status| numbers(&status, "Seccomp").first() == Some(&2))
        })
    };
    PARTS.into_iter().all(confined)
}

/// Returns the tier of `pid` in the helper whose first process is `supervisor`.
pub(crate) fn tier_of(pid: i32, supervisor: i32) -> Option<Tier> {
    if pid == supervisor {
        return Some(Tier::Supervisor);
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let helper = process_table::name(pid)? == process_table::name(supervisor)?;
    let (uid, gid) = (*numbers(&status, "Uid").first()?, *numbers(&status, "Gid").first()?);
    Some(match uid {
        _ if gid == profile::OPENER.identity.gid => Tier::Opener,
        uid if uid == profile::BROKER.identity.uid => Tier::Broker,
        0 => Tier::Directories,
        _ if helper => Tier::Runner,
        _ => Tier::Tool,
    })
}
