//! The rules by which a process is judged: what each is, what a profile says by it, and why.

use ebs_csi_policy::profile::process::SecureBits;
use ebs_csi_policy::profile::{self, FilePlace, Files, HeldCapability, Profile, Resource, process};
use ebs_csi_policy::tool;

pub(crate) mod digest;
pub(crate) mod environment;
pub(crate) mod holdings;
pub(crate) mod namespaces;
pub(crate) mod settings;
pub(crate) mod socket_files;
mod sockets;

/// A kind of rule. Its identifier in a profile is the profile's name, a slash and its own name.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The name.
    pub name: &'static str,
    /// What is compared.
    pub about: &'static str,
}

/// The rule on the Landlock domain.
pub const LANDLOCK: &str = "landlock";
/// The rule on securebits.
pub const SECURE_BITS: &str = "securebits";
/// The rules on what no kernel shows to anybody but the process itself.
pub const NEVER_SEEN: [&str; 2] = [LANDLOCK, SECURE_BITS];
/// The rule that needs the files of a build.
pub const DIGEST: &str = "digest";
/// The rule about the members of a tree.
pub const PROCESSES: &str = "processes";

/// Every rule, by name.
pub const RULES: [Rule; 20] = [
    Rule { name: "capabilities", about: "the five capability sets of each thread" },
    Rule { name: DIGEST, about: "SHA-256 of the program's file, as the build listed it" },
    Rule { name: "disks", about: "block devices that are open" },
    Rule { name: "environment", about: "the variables with which it was started" },
    Rule {
        name: "files",
        about: "open files and devices: permission bits, Landlock rules, arguments",
    },
    Rule { name: "group", about: "real, effective, saved and file-system group of each thread" },
    Rule { name: "groups", about: "supplementary groups of each thread" },
    Rule { name: LANDLOCK, about: "the Landlock domain: no kernel shows it, the process logs it" },
    Rule { name: "limits", about: "hard resource limits" },
    Rule { name: "namespaces", about: "namespaces of each thread" },
    Rule { name: "no-new-privs", about: "the flag no_new_privs of each thread" },
    Rule { name: PROCESSES, about: "the processes that this one must have started, and no other" },
    Rule {
        name: "program",
        about: "the file that runs: its name, and that it is still at its path",
    },
    Rule { name: "propagation", about: "whether mounts beneath the kubelet root reach the node" },
    Rule { name: SECURE_BITS, about: "securebits: no kernel shows them, the process logs them" },
    Rule { name: "settings", about: "arguments that widen the policy" },
    Rule { name: "socket-files", about: "owner and mode of the unix sockets that its flags name" },
    Rule { name: "sockets", about: "families, listeners and connections of open sockets" },
    Rule { name: "system-calls", about: "the filters of each thread, instruction by instruction" },
    Rule { name: "user", about: "real, effective, saved and file-system user of each thread" },
];

impl Rule {
    /// Returns the rule of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        RULES.into_iter().find(|rule| rule.name == name)
    }

    /// Returns whether a profile has the rule.
    #[must_use]
    pub fn applies_to(self, profile: &Profile) -> bool {
        match self.name {
            "namespaces" => profile.namespaces().next().is_some(),
            "propagation" => profile.name == profile::BROKER.name,
            "socket-files" => profile.sockets().next().is_some(),
            PROCESSES => is_parent(profile),
            _ => true,
        }
    }

    /// Returns the reasons of the policy for what a profile says by this rule.
    #[must_use]
    pub fn reasons(self, profile: &Profile) -> Vec<String> {
        let identity = || vec![profile.identity.why.to_owned()];
        match self.name {
            "user" | "group" | "groups" => identity(),
            "capabilities" if profile.capabilities.is_empty() => {
                vec!["what it does needs none".to_owned()]
            }
            "capabilities" => profile
                .capabilities
                .iter()
                .map(|held| named(held.capability.name, held.why))
                .collect(),
            "limits" => profile
                .limits
                .iter()
                .map(|limit| named(of_resource(limit.resource).1, limit.why))
                .collect(),
            "sockets" => {
                let made = profile.calls.iter().filter(|rule| rule.call == "socket");
                let made = made.map(|rule| named("socket", rule.why));
                let listeners = profile.listeners.iter().map(|one| named(one.flag, one.why));
                let inherits = "unix sockets that it inherits reach the driver's processes alone";
                [inherits.to_owned()].into_iter().chain(made).chain(listeners).collect()
            }
            "files" | "disks" | LANDLOCK => {
                let places = profile.landlock.files.rules().iter().map(|rule| match rule.place {
                    FilePlace::Path(path) => named(path, rule.why),
                    FilePlace::Named(name) => named(&format!("<{name}>"), rule.why),
                });
                let handled = (self.name == LANDLOCK).then(|| process::LANDLOCK.why.to_owned());
                let own = profile.landlock.why.to_owned();
                [own].into_iter().chain(handled).chain(places).collect()
            }
            "system-calls" => profile.calls.iter().map(|rule| named(rule.call, rule.why)).collect(),
            "settings" => settings::reasons(profile),
            "environment" => environment::reasons(profile),
            "namespaces" => profile
                .namespaces()
                .flat_map(|row| row.kinds.iter().map(|kind| named(kind.name, row.why)))
                .collect(),
            "socket-files" => profile.sockets().map(|row| named(row.flag, row.why)).collect(),
            SECURE_BITS => {
                let rows = process::SECURE_BITS.iter();
                rows.map(|row| named(&bits_of(row), row.why)).collect()
            }
            other => vec![reason_of(other).to_owned()],
        }
    }
}

fn bits_of(row: &SecureBits) -> String {
    row.bits.iter().map(|bit| bit.name).collect::<Vec<_>>().join(" ")
}

fn named(what: &str, why: &str) -> String {
    format!("{what}: {why}")
}

/// Returns the reason of a rule that is the same for each profile.
fn reason_of(rule: &str) -> &'static str {
    match rule {
        DIGEST => "a process of another program keeps to no profile that was reviewed",
        "no-new-privs" => "no program that is started can give back what was dropped",
        PROCESSES => "a process that should be there and is not was renamed, or has failed",
        "program" => {
            "the profile is chosen by the program; a file that was renamed or replaced since the \
             start is not the one that runs"
        }
        "propagation" => {
            "kubelet and pods see what is mounted; otherwise they write to the node's own disk"
        }
        _ => "",
    }
}

/// Returns what a profile says by a rule.
#[must_use]
pub fn expected(rule: &str, profile: &Profile) -> String {
    let identity = &profile.identity;
    let or_other = if identity.other_unprivileged_uid { ", or another than 0" } else { "" };
    match rule {
        "user" => format!("{}{or_other}", identity.uid),
        "group" => format!("{}{or_other}", identity.gid),
        "groups" if identity.other_unprivileged_uid => {
            format!("{:?}, or those of the pod from 1000 on", identity.groups)
        }
        "groups" => format!("{:?}", identity.groups),
        "capabilities" if profile.capabilities.is_empty() => "none".to_owned(),
        "capabilities" => profile.capabilities.iter().map(held).collect::<Vec<_>>().join(", "),
        "no-new-privs" => "1".to_owned(),
        "system-calls" => format!("the filters that the profile {} compiles to", profile.name),
        "limits" => {
            let limits = profile.limits.iter();
            let limits = limits.map(|one| format!("{} {}", of_resource(one.resource).1, one.value));
            limits.collect::<Vec<_>>().join(", ")
        }
        "sockets" => of_sockets(profile),
        "files" => "files of its profile".to_owned(),
        "disks" if may_hold_disks(profile) => "those that are handed to it".to_owned(),
        "disks" => "none".to_owned(),
        "environment" => environment::expected(profile),
        SECURE_BITS => {
            let all: Vec<_> = process::SECURE_BITS.iter().map(bits_of).collect();
            format!("{}, where it started with a capability", all.join(" "))
        }
        "settings" => settings::expected(profile),
        "program" => format!("{}, still at its path", programs(profile)),
        DIGEST => format!("{} of the build", programs(profile)),
        PROCESSES => "each process of its tree, once".to_owned(),
        "namespaces" => namespaces::expected(profile),
        "propagation" => "shared mounts beneath the kubelet root".to_owned(),
        "socket-files" => socket_files::expected(profile),
        LANDLOCK => {
            let (abi, tcp) = (process::LANDLOCK.abi, profile.landlock.tcp);
            match profile.landlock.files {
                Files::Free => format!("no rule on files, tcp {tcp:?}, up to ABI {abi}"),
                Files::Inherited => "the supervisor's domain".to_owned(),
                Files::Listed(rules) => {
                    format!("{} rules on files, tcp {tcp:?}, up to ABI {abi}", rules.len())
                }
            }
        }
        _ => String::new(),
    }
}

fn of_sockets(profile: &Profile) -> String {
    let made = profile.calls.iter().filter(|rule| rule.call == "socket");
    let made: Vec<_> = made.flat_map(sockets::families).collect();
    let listeners: Vec<_> = profile.listeners.iter().map(|one| one.flag).collect();
    let or_none = |all: Vec<&str>| match all.as_slice() {
        [] => "none".to_owned(),
        _ => all.join(" "),
    };
    let (made, listeners) = (or_none(made), or_none(listeners));
    format!("makes {made}; serves at the addresses of {listeners}; inherits unix sockets")
}

fn held(held: &HeldCapability) -> String {
    let how = match (held.effective, held.optional) {
        (true, false) => "",
        (true, true) => " where granted",
        (false, true) => " permitted where granted",
        (false, false) => " permitted",
    };
    format!("{}{how}", held.capability.name)
}

/// Returns a limit's name as the kernel writes it, and a short one.
pub(crate) const fn of_resource(resource: Resource) -> (&'static str, &'static str) {
    match resource {
        Resource::Core => ("Max core file size", "core"),
        Resource::Descriptors => ("Max open files", "nofile"),
    }
}

/// Returns whether a profile lets a process hold disks.
pub(crate) fn may_hold_disks(profile: &Profile) -> bool {
    let files = files(profile);
    let of_disks = |place| matches!(place, FilePlace::Path("/dev") | FilePlace::Named("device"));
    matches!(files, Files::Free) || files.rules().iter().any(|rule| of_disks(rule.place))
}

/// Returns the rules on files that bind a process of the profile.
pub(crate) fn files(profile: &Profile) -> Files {
    match profile.landlock.files {
        Files::Inherited => profile::SUPERVISOR.landlock.files,
        own => own,
    }
}

/// Returns whether the processes of a profile start others.
fn is_parent(profile: &Profile) -> bool {
    [profile::SUPERVISOR, profile::LAUNCHER].iter().any(|one| one.name == profile.name)
}

/// Returns the file names that a profile's program may have, separated by commas.
pub(crate) fn programs(profile: &Profile) -> String {
    let name = match profile.name {
        "controller" => "ebs-csi-controller",
        "node-lifecycle" => "ebs-csi-node-lifecycle",
        "node-agent" => "ebs-csi-node-agent",
        "launcher" | "router" => "aws-ebs-csi-driver",
        "tool" => {
            let names = tool::TOOLS.iter().filter_map(|tool| tool.path.rsplit('/').next());
            let names: std::collections::BTreeSet<_> = names.collect();
            return Vec::from_iter(names).join(", ");
        }
        _ => crate::process::HELPER,
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_stand_in_order_with_reason() {
        assert!(RULES.is_sorted_by(|one, other| one.name < other.name));
        for profile in profile::ALL {
            for rule in RULES.iter().filter(|rule| rule.applies_to(profile)) {
                let id = format!("{}/{}", profile.name, rule.name);
                assert!(!expected(rule.name, profile).is_empty(), "{id}");
                let reasons = rule.reasons(profile);
                let is_told = reasons.iter().all(|reason| !reason.trim().is_empty());
                assert!(is_told && !reasons.is_empty(), "{id}: {reasons:?}");
            }
        }
    }
}
