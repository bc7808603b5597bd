//! Which processes there are, which profile each should have, and which must be there.

use std::path::Path;
use std::{fs, io};

use ebs_csi_policy::deviation::Deviation;
use ebs_csi_policy::profile::{self, Profile};

use crate::process::{HELPER, Process, program_of, read_status};
use crate::sys::is_end;

/// The program of the launcher and of the router.
const LAUNCHER: &str = "aws-ebs-csi-driver";
/// The programs of the driver.
const PROGRAMS: [&str; 5] =
    ["ebs-csi-controller", "ebs-csi-node-lifecycle", "ebs-csi-node-agent", HELPER, LAUNCHER];
/// The processes that a supervisor always has. With an address of vsock it has a relay, too.
pub const PARTS_OF_HELPER: [&Profile; 3] = [profile::BROKER, profile::DIRECTORIES, profile::OPENER];

impl Process {
    /// Returns the process and all its descendants, in the order of their numbers. Fails when one
    /// of them cannot be read. Leaves out those that end meanwhile, but for the first.
    pub fn tree(root: u32) -> io::Result<Vec<Self>> {
        let mut parents = Vec::new();
        for pid in pids()?.filter(|pid| *pid != root) {
            match read_status(&Path::new("/proc").join(pid.to_string())) {
                Ok(status) => parents.push((pid, status.parent)),
                Err(error) if is_end(&error) => {}
                Err(error) => return Err(unreadable(pid, &error)),
            }
        }
        let mut members = vec![root];
        // A child may have a lower number than its parent once numbers have wrapped.
        loop {
            let (children, others): (Vec<_>, Vec<_>) =
                parents.into_iter().partition(|(_, parent)| members.contains(parent));
            if children.is_empty() {
                break;
            }
            members.extend(children.into_iter().map(|(pid, _)| pid));
            parents = others;
        }
        members.sort_unstable();
        let mut found = Vec::new();
        for pid in members {
            match Self::read(pid) {
                Ok(process) => found.push(process),
                Err(error) if pid != root && is_end(&error) => {}
                Err(error) => return Err(unreadable(pid, &error)),
            }
        }
        Ok(found)
    }

    /// Returns the profile that the process should have, by its program, its parent and its user.
    /// Returns `None` for a program that is not the driver's.
    #[must_use]
    pub fn expected(&self, tree: &[Self]) -> Option<&'static Profile> {
        let has_helper_parent = self.parent_in(tree).is_some_and(|parent| parent.program == HELPER);
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
                uid if uid == profile::RELAY.identity.uid => profile::RELAY,
                _ => profile::DIRECTORIES,
            }),
            _ if has_helper_parent => Some(profile::TOOL),
            _ => None,
        }
    }

    fn parent_in<'a>(&self, tree: &'a [Self]) -> Option<&'a Self> {
        tree.iter().find(|one| one.pid == self.parent)
    }

    /// Returns the deviations of the process as a member of its tree: a process that it must have
    /// does not run, or a program that is not the driver's was started by one that is.
    #[must_use]
    pub fn deviations_in(&self, tree: &[Self]) -> Vec<Deviation> {
        let Some(own) = self.expected(tree) else {
            let started_by_driver = self.parent_in(tree).is_some_and(|parent| {
                parent.expected(tree).is_some() || !parent.deviations_in(tree).is_empty()
            });
            let found = self.program.escape_debug().to_string();
            let expected = "none but the driver's".to_owned();
            let foreign = Deviation { what: "program", expected, found };
            return Vec::from_iter(started_by_driver.then_some(foreign));
        };
        let children: Vec<&Self> = tree.iter().filter(|one| one.parent == self.pid).collect();
        let runs = |part: &str| {
            children.iter().any(|one| {
                one.program == part || one.expected(tree).is_some_and(|found| found.name == part)
            })
        };
        let parts: Vec<&str> = match own.name {
            name if name == profile::SUPERVISOR.name => {
                let has_vsock = self.values_of("--listen").any(|one| one.starts_with("vsock:"));
                let relay = has_vsock.then_some(profile::RELAY);
                PARTS_OF_HELPER.into_iter().chain(relay).map(|part| part.name).collect()
            }
            // The launcher's arguments name what it has started: `controller:17`.
            name if name == profile::LAUNCHER.name => self
                .arguments
                .iter()
                .filter_map(|word| Some(word.split_once(':')?.0))
                .map(|part| if part == "mount-helper" { profile::SUPERVISOR.name } else { part })
                .collect(),
            _ => Vec::new(),
        };
        parts.into_iter().filter(|part| !runs(part)).map(missing).collect()
    }
}

/// Returns the deviations of a machine on which these processes of the driver run: a node-agent
/// needs a helper and a helper a node-agent, unless the other one is in another machine.
#[must_use]
pub fn deviations_of_machine<'a>(
    processes: impl Iterator<Item = (&'a Process, &'static Profile)>,
) -> Vec<Deviation> {
    let processes: Vec<_> = processes.collect();
    let found = |wanted: &Profile, flag: &'static str| {
        let all = processes.iter().filter(|(_, profile)| profile.name == wanted.name);
        let values = all.map(|(process, _)| process.values_of(flag).collect::<Vec<_>>());
        values.collect::<Vec<_>>()
    };
    let is_here = |values: &Vec<&str>| !values.iter().any(|value| value.contains("vsock:"));
    let agents = found(profile::NODE_AGENT, "--helper");
    let helpers = found(profile::SUPERVISOR, "--listen");
    let mut deviations = Vec::new();
    if helpers.is_empty() && agents.iter().any(is_here) {
        deviations.push(missing(profile::SUPERVISOR.name));
    }
    if agents.is_empty() && helpers.iter().any(is_here) {
        deviations.push(missing(profile::NODE_AGENT.name));
    }
    deviations
}

fn missing(part: &str) -> Deviation {
    Deviation { what: "processes", expected: part.to_owned(), found: "none".to_owned() }
}

/// Returns the numbers of the processes that run a program of the driver on this machine, oldest
/// first, and an error for each process that does not show its program.
pub fn running() -> io::Result<(Vec<u32>, Vec<io::Error>)> {
    let (mut found, mut hidden) = (Vec::new(), Vec::new());
    for pid in pids()? {
        match program_of(pid) {
            Ok(Some(name)) if PROGRAMS.contains(&name.as_str()) => found.push(pid),
            Ok(_) => {}
            Err(error) => hidden.push(unreadable(pid, &error)),
        }
    }
    found.sort_unstable();
    Ok((found, hidden))
}

/// Adds the process to an error.
pub fn unreadable(pid: u32, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("process {pid} cannot be read: {error}"))
}

fn pids() -> io::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::process_status::Status;

    fn helper(pid: u32, parent: u32, uid: u32) -> Process {
        Process {
            pid,
            parent,
            program: HELPER.to_owned(),
            status: Status { uids: [uid; 4], ..Status::default() },
            ..Process::default()
        }
    }

    fn named(pid: u32, parent: u32, program: &str) -> Process {
        Process { pid, parent, program: program.to_owned(), ..Process::default() }
    }

    /// Returns what a process lacks or is in its tree.
    fn found(process: &Process, tree: &[Process]) -> Vec<String> {
        process.deviations_in(tree).iter().map(ToString::to_string).collect()
    }

    /// The group distinguishes the opener from the directories process when both run as user 0.
    #[test]
    fn helper_processes_are_identified_by_parent_and_user() {
        let tool = named(14, 13, "mke2fs");
        let mut opener = helper(15, 10, 0);
        opener.status.gids = [profile::OPENER.identity.gid; 4];
        let (supervisor, broker) = (helper(10, 1, 65525), helper(11, 10, 65531));
        let (directories, runner) = (helper(12, 10, 0), helper(13, 10, 65525));
        let relay = helper(16, 10, 65523);
        let mut tree = vec![supervisor, broker, directories, runner, tool, opener, relay];
        let names = |tree: &[Process]| {
            let each = tree.iter().map(|one| one.expected(tree).map_or("-", |found| found.name));
            each.collect::<Vec<_>>()
        };
        let expected = ["supervisor", "broker", "directories", "runner", "tool", "opener", "relay"];
        assert_eq!(names(&tree), expected);
        assert!(tree.iter().all(|one| found(one, &tree).is_empty()));
        tree[0].arguments = ["helper", "--listen", "vsock://:5"].map(str::to_owned).to_vec();
        assert_eq!(found(&tree[0], &tree), [""; 0]);
        tree.pop();
        assert_eq!(found(&tree[0], &tree), ["processes: expected relay, found none"]);
        tree[0].arguments.clear();
        tree.remove(1);
        assert_eq!(found(&tree[0], &tree), ["processes: expected broker, found none"]);
    }

    #[test]
    fn launcher_lacks_what_its_arguments_name() {
        let mut launcher = named(10, 1, LAUNCHER);
        launcher.arguments = ["x", "supervise", "mount-helper:11", "node-agent:12", "router:13"]
            .map(str::to_owned)
            .to_vec();
        let mut router = named(13, 10, LAUNCHER);
        router.arguments = ["x", "router"].map(str::to_owned).to_vec();
        let agent = named(12, 10, "ebs-csi-node-agent");
        let mut tree = vec![launcher, helper(11, 10, 65525), agent, router];
        assert_eq!(found(&tree[0], &tree), [""; 0]);
        tree.truncate(2);
        let lacks = |part| format!("processes: expected {part}, found none");
        assert_eq!(found(&tree[0], &tree), [lacks("node-agent"), lacks("router")]);
    }

    #[test]
    fn foreign_program_beneath_driver_is_deviation() {
        let tree = [named(10, 1, "containerd"), named(11, 10, "ebs-csi-controller")];
        let tree = [&tree[..], &[named(12, 11, "sh"), named(13, 12, "cat")]].concat();
        let all: Vec<_> = tree.iter().map(|one| found(one, &tree).len()).collect();
        assert_eq!(all, [0, 0, 1, 1]);
        assert!(tree[0].expected(&tree).is_none());
    }

    #[test]
    fn agent_and_helper_need_each_other() {
        let agent = |helper: &str| {
            let mut agent = named(10, 1, "ebs-csi-node-agent");
            agent.arguments = vec!["agent".to_owned(), "--helper".to_owned(), helper.to_owned()];
            agent
        };
        let supervisor = |listen: &str| {
            let mut supervisor = helper(11, 1, 65525);
            supervisor.arguments = vec!["helper".to_owned(), format!("--listen={listen}")];
            supervisor
        };
        for (processes, expected) in [
            (vec![agent("unix:///s")], 1),
            (vec![agent("hvsock:///s:1")], 0),
            (vec![supervisor("unix:///s")], 1),
            (vec![supervisor("vsock://:1")], 0),
            (vec![agent("unix:///s"), supervisor("unix:///s")], 0),
            (vec![], 0),
        ] {
            let all = processes.iter().filter_map(|one| Some((one, one.expected(&processes)?)));
            assert_eq!(deviations_of_machine(all).len(), expected, "{processes:?}");
        }
    }
}
