//! Compares live processes with their profiles, from `/proc` alone.
//!
//! `/proc` does not show Landlock domains: the process itself confirms that part of its profile
//! when it starts.

use std::fs;
use std::io;
use std::path::Path;

use crate::profile::{self, BlockNodes, Profile, Resource};
use crate::variant::{PRODUCTION, Policy};

mod deviation;
mod process_status;

pub use deviation::Deviation;
pub use process_status::{Status, StatusError};

/// What `/proc` reports about one process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// The process's number.
    pub pid: u32,
    /// The number of the process's parent.
    pub parent: u32,
    /// The file name of its program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The names of the variables of its first environment.
    pub variables: Vec<String>,
    /// Hard limits: the name as the kernel writes it, and the value; `None`: unlimited.
    pub limits: Vec<(String, Option<u64>)>,
    /// `/proc/PID/status`.
    pub status: Status,
    /// The nodes of disks as the process sees them; empty when they cannot be read.
    pub disks: BlockNodes,
}

/// The program of the helper's processes.
const HELPER: &str = "ebs-csi-mount-helper";
/// The program of the launcher and of the router.
const LAUNCHER: &str = "aws-ebs-csi-driver";
/// The argument that weakens every policy.
const ALLOW_MISSING_LANDLOCK: &str = "--allow-missing-landlock";

impl Process {
    /// Reads a process from `/proc`.
    ///
    /// # Errors
    /// An I/O error when the process has ended, or belongs to somebody else and the caller is not
    /// root.
    pub fn read(pid: u32) -> io::Result<Self> {
        let directory = Path::new("/proc").join(pid.to_string());
        let text = |name: &str| fs::read_to_string(directory.join(name));
        let words = |name: &str| -> io::Result<Vec<String>> {
            Ok(fs::read(directory.join(name))?
                .split(|byte| *byte == 0)
                .filter(|word| !word.is_empty())
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect())
        };
        let status = text("status")?;
        let parent = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
            .unwrap_or(0);
        let program = program(&directory)?.trim_end_matches(" (deleted)").to_owned();
        let arguments = words("cmdline")?;
        let disks = match program.as_str() {
            HELPER => {
                let class = policy_chosen_by(&arguments).disks;
                BlockNodes::read(&directory.join("root/dev"), class).unwrap_or_default()
            }
            _ => BlockNodes::default(),
        };
        Ok(Self {
            pid,
            parent,
            program,
            arguments,
            variables: words("environ")?
                .iter()
                .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()))
                .collect(),
            limits: parse_limits(&text("limits")?),
            status: Status::parse(&status).map_err(io::Error::other)?,
            disks,
        })
    }

    /// Returns the process and all its descendants, in the order of their numbers.
    ///
    /// # Errors
    /// An I/O error when the first process cannot be read. Leaves out other processes that end
    /// meanwhile.
    pub fn tree(root: u32) -> io::Result<Vec<Self>> {
        let mut found = vec![Self::read(root)?];
        let others = pids()?.filter(|pid| *pid != root);
        let mut all: Vec<Self> = others.filter_map(|pid| Self::read(pid).ok()).collect();
        // A child may have a lower number than its parent once numbers have wrapped.
        loop {
            let (children, others): (Vec<_>, Vec<_>) = all
                .into_iter()
                .partition(|one| found.iter().any(|parent| parent.pid == one.parent));
            if children.is_empty() {
                break;
            }
            found.extend(children);
            all = others;
        }
        found.sort_by_key(|one| one.pid);
        Ok(found)
    }

    /// Returns the profile that the process should have, by its program, its parent and its user.
    /// Returns `None` for a program that is not the driver's.
    #[must_use]
    pub fn expected(&self, tree: &[Self]) -> Option<&'static Profile> {
        let parent = tree.iter().find(|one| one.pid == self.parent);
        let has_helper_parent = parent.is_some_and(|parent| parent.program == HELPER);
        match self.program.as_str() {
            "ebs-csi-controller" => Some(profile::CONTROLLER),
            "ebs-csi-node-lifecycle" => Some(profile::NODE_LIFECYCLE),
            "ebs-csi-node-agent" => Some(profile::NODE_AGENT),
            LAUNCHER if self.arguments.get(1).is_some_and(|mode| mode == "router") => {
                Some(profile::ROUTER)
            }
            LAUNCHER => Some(profile::LAUNCHER),
            HELPER if !has_helper_parent => Some(profile::SUPERVISOR),
            HELPER if self.status.gids[1] == profile::OPENER.identity.gid => Some(profile::OPENER),
            HELPER => Some(match self.status.uids[1] {
                uid if uid == profile::BROKER.identity.uid => profile::BROKER,
                uid if uid == profile::RUNNER.identity.uid => profile::RUNNER,
                _ => profile::DIRECTORIES,
            }),
            _ if has_helper_parent => Some(profile::TOOL),
            _ => None,
        }
    }

    /// Returns the policy that the process's arguments choose.
    #[must_use]
    pub fn policy(&self) -> Policy {
        policy_chosen_by(&self.arguments)
    }

    /// Returns every difference between the process and a profile. A policy other than `policy` and
    /// [`PRODUCTION`] is one.
    #[must_use]
    pub fn deviations(&self, profile: &'static Profile, policy: Policy) -> Vec<Deviation> {
        let mut expected = profile.on(&self.disks);
        // A disk that root alone may open may have appeared after the start of a process that is
        // not root.
        if expected.identity.uid == 0 && self.status.uids == [profile.identity.uid; 4] {
            let mut disks = self.disks.clone();
            disks.nodes.retain(|(_, owner)| !owner.is_open_to_root_alone());
            expected = profile.on(&disks);
        }
        let mut deviations = expected.deviations(&self.status);
        let mut add = |what, expected: &str, found: &str| {
            let (expected, found) = (expected.to_owned(), found.to_owned());
            deviations.push(Deviation { what, expected, found });
        };
        for limit in profile.limits {
            let (name, what) = match limit.resource {
                Resource::Core => ("Max core file size", "core limit"),
                Resource::Descriptors => ("Max open files", "descriptor limit"),
            };
            let actual =
                self.limits.iter().find(|(known, _)| known == name).and_then(|(_, value)| *value);
            if actual.is_none_or(|actual| actual > limit.value) {
                let found = actual.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
                add(what, &limit.value.to_string(), &found);
            }
        }
        let enforced = self.policy();
        if enforced != policy && enforced != PRODUCTION {
            add("policy", policy.name, enforced.name);
        }
        if self.arguments.iter().any(|given| given == ALLOW_MISSING_LANDLOCK) {
            add("policy", policy.name, "a start without Landlock allowed");
        }
        // Only the controller calls AWS; no other process gets a credential.
        if profile.name != profile::CONTROLLER.name {
            let is_credential = |name: &&String| {
                name.starts_with("AWS_")
                    && ["SECRET", "TOKEN", "ACCESS_KEY", "CREDENTIALS", "ROLE_ARN"]
                        .iter()
                        .any(|word| name.contains(word))
            };
            for name in self.variables.iter().filter(is_credential) {
                add("environment", "no AWS credential", name);
            }
        }
        deviations
    }
}

/// Returns the policy that arguments of a process choose.
fn policy_chosen_by(arguments: &[String]) -> Policy {
    let mut policies = arguments.iter().filter_map(|one| Policy::chosen_by(one));
    policies.next().unwrap_or(PRODUCTION)
}

/// Parses `/proc/PID/limits`, a table with fixed columns.
fn parse_limits(text: &str) -> Vec<(String, Option<u64>)> {
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let (name, rest) = line.split_at_checked(26)?;
            let hard = rest.split_whitespace().nth(1)?;
            Some((name.trim().to_owned(), hard.parse().ok()))
        })
        .collect()
}

/// Returns the numbers of the processes that run a program of the driver on this machine, oldest
/// first.
///
/// # Errors
/// An I/O error when `/proc` cannot be listed.
pub fn running() -> io::Result<Vec<u32>> {
    let programs =
        ["ebs-csi-controller", "ebs-csi-node-lifecycle", "ebs-csi-node-agent", HELPER, LAUNCHER];
    let runs_one = |pid: &u32| {
        program(&Path::new("/proc").join(pid.to_string()))
            .is_ok_and(|name| programs.contains(&name.as_str()))
    };
    let mut found: Vec<u32> = pids()?.filter(runs_one).collect();
    found.sort_unstable();
    Ok(found)
}

/// Returns the numbers of all processes.
fn pids() -> io::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// Returns the file name of the program of the process with this directory in `/proc`.
fn program(directory: &Path) -> io::Result<String> {
    let path = fs::read_link(directory.join("exe"))?;
    Ok(path.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::NodeOwner;
    use crate::variant::{GUEST, SANDBOX};

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max core file size        0                    0                    bytes     
Max open files            1024                 4096                 files     
";

    fn confined(profile: &'static Profile) -> Process {
        let held = profile.capabilities.iter().filter(|held| held.effective);
        let held = held.map(|held| held.capability.bit()).sum();
        let limit = |resource| {
            profile.limits.iter().find(|one| one.resource == resource).map(|limit| limit.value)
        };
        Process {
            status: Status {
                uids: [profile.identity.uid; 4],
                gids: [profile.identity.gid; 4],
                groups: profile.identity.groups.to_vec(),
                no_new_privs: true,
                seccomp: 2,
                permitted: held,
                effective: held,
                bounding: held,
                ..Status::default()
            },
            limits: vec![
                ("Max core file size".to_owned(), limit(Resource::Core)),
                ("Max open files".to_owned(), limit(Resource::Descriptors)),
            ],
            ..Process::default()
        }
    }

    #[test]
    fn proc_limits_are_parsed_by_column() {
        let limits = parse_limits(LIMITS);
        assert_eq!(limits[0], ("Max cpu time".to_owned(), None));
        assert_eq!(limits[1], ("Max core file size".to_owned(), Some(0)));
        assert_eq!(limits[2], ("Max open files".to_owned(), Some(4096)));
    }

    #[test]
    fn broker_matching_its_profile_has_no_deviation() {
        let process = confined(profile::BROKER);
        assert_eq!(process.deviations(profile::BROKER, PRODUCTION), []);
    }

    /// Where only root may open the disks, the opener may run as user 0; elsewhere user 0 is a
    /// deviation.
    #[test]
    fn opener_group_must_match_disk_group() {
        let disk = |gid| BlockNodes {
            nodes: vec![("nvme0n1".to_owned(), NodeOwner { uid: 0, gid, mode: 0o660 })],
        };
        let mut process = confined(profile::OPENER);
        process.disks = disk(485);
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION)[0].what, "supplementary groups");
        process.status.groups = vec![485];
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION), []);
        process.disks = disk(6);
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION).len(), 1);
        // Device nodes that only root may open: the opener's user is 0, unless the nodes appeared
        // later.
        process.status.groups.clear();
        process.disks = disk(0);
        process.disks.nodes[0].1.mode = 0o600;
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION), []);
        process.status.uids = [0; 4];
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION), []);
        process.disks = disk(6);
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION)[0].what, "user");
    }

    #[test]
    fn unexpected_policy_is_deviation_and_shown() {
        let mut process = confined(profile::BROKER);
        assert_eq!(process.deviations(profile::BROKER, GUEST), []);
        for (flag, policy) in [("--guest-disks", GUEST), ("--sandbox", SANDBOX)] {
            process.arguments = vec!["helper".to_owned(), flag.to_owned()];
            assert_eq!(process.policy(), policy);
            assert_eq!(process.deviations(profile::BROKER, policy), []);
            let other = if policy == GUEST { SANDBOX } else { GUEST };
            for expected in [PRODUCTION, other] {
                let found = process.deviations(profile::BROKER, expected);
                assert_eq!(found.len(), 1, "{flag}");
                assert_eq!((found[0].what, &*found[0].found), ("policy", policy.name));
            }
        }
    }

    #[test]
    fn credential_in_node_process_environment_is_deviation() {
        let mut process = confined(profile::BROKER);
        process.variables = vec![
            "AWS_REGION".to_owned(),
            "AWS_SECRET_ACCESS_KEY".to_owned(),
            "AWS_WEB_IDENTITY_TOKEN_FILE".to_owned(),
        ];
        let found = process.deviations(profile::BROKER, PRODUCTION);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|one| one.what == "environment"));
    }

    #[test]
    fn too_high_or_missing_limit_is_deviation() {
        let mut process = confined(profile::BROKER);
        process.limits = parse_limits(LIMITS);
        assert_eq!(process.deviations(profile::BROKER, PRODUCTION)[0].what, "descriptor limit");
        process.limits.clear();
        assert_eq!(process.deviations(profile::BROKER, PRODUCTION).len(), 2);
    }

    /// The group distinguishes the opener from the directories process when both run as user 0.
    #[test]
    fn helper_processes_are_identified_by_parent_and_user() {
        let helper = |pid, parent, uid| Process {
            pid,
            parent,
            program: HELPER.to_owned(),
            status: Status { uids: [uid; 4], ..Status::default() },
            ..Process::default()
        };
        let tool =
            Process { pid: 14, parent: 13, program: "mke2fs".to_owned(), ..Process::default() };
        let mut opener = helper(15, 10, 0);
        opener.status.gids = [profile::OPENER.identity.gid; 4];
        let (supervisor, broker) = (helper(10, 1, 65525), helper(11, 10, 65531));
        let (directories, runner) = (helper(12, 10, 0), helper(13, 10, 65525));
        let tree = [supervisor, broker, directories, runner, tool, opener];
        let names = tree.each_ref().map(|one| one.expected(&tree).map_or("-", |found| found.name));
        assert_eq!(names, ["supervisor", "broker", "directories", "runner", "tool", "opener"]);
        let stranger = Process { program: "sh".to_owned(), ..Process::default() };
        assert!(stranger.expected(&tree).is_none());
    }

    #[test]
    fn own_process_is_read_and_shows_deviations() {
        let process = Process::read(std::process::id()).unwrap();
        assert!(!process.program.is_empty() && !process.limits.is_empty());
        assert!(process.status.threads >= 1);
        assert!(!process.deviations(profile::NODE_AGENT, PRODUCTION).is_empty());
    }
}
